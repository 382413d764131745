/* How connections end: half-close, both halves, reset, linger, a peer that dies. */
#include "calls.h"

static void one_half(void) {
    title("half-close");
    struct ends ends = connected();
    char got[16];
    SAY(send(ends.a, "last", 4, 0));
    SAY(shutdown(ends.a, SHUT_WR));
    await(ends.b, POLLRDHUP);
    say_events("a", ends.a);
    say_events("b", ends.b);
    SAY(send(ends.a, "x", 1, MSG_NOSIGNAL));
    SAY(shutdown(ends.a, SHUT_WR));
    SAY(recv(ends.b, got, 16, 0));
    say_events("b", ends.b);
    SAY(recv(ends.b, got, 16, 0));
    SAY(recv(ends.b, got, 16, MSG_DONTWAIT));
    SAY(recv(ends.b, got, 16, MSG_PEEK));
    SAY(read(ends.b, got, 16));
    SAY(send(ends.b, "answer", 6, 0));
    await_bytes(ends.a, 6);
    SAY(recv(ends.a, got, 16, 0));
    SAY(shutdown(ends.b, SHUT_WR));
    await(ends.a, POLLHUP);
    say_events("a", ends.a);
    say_events("b", ends.b);
    SAY(recv(ends.a, got, 16, 0));
    SAY(send(ends.b, "x", 1, MSG_NOSIGNAL));
    SAY(shutdown(ends.b, SHUT_RDWR));
    SAY(shutdown(ends.a, SHUT_RD));
    SAY(shutdown(ends.a, 3));
    printf("%d %d\n", option_of(ends.a, SOL_SOCKET, SO_ERROR), option_of(ends.b, SOL_SOCKET, SO_ERROR));
    SAY(close(ends.a));
    SAY(close(ends.b));
}

static void no_more_reading(void) {
    title("SHUT_RD");
    struct ends ends = connected();
    char got[16];
    SAY(send(ends.b, "before", 6, 0));
    await_bytes(ends.a, 6);
    SAY(shutdown(ends.a, SHUT_RD));
    say_events("a", ends.a);
    SAY(recv(ends.a, got, 16, 0));
    SAY(recv(ends.a, got, 16, 0));
    SAY(send(ends.a, "still", 5, 0));
    await_bytes(ends.b, 5);
    SAY(recv(ends.b, got, 16, 0));
    SAY(shutdown(ends.a, SHUT_WR));
    await(ends.b, POLLRDHUP);
    say_events("a", ends.a);
    close_both(ends);
    title("SHUT_RDWR");
    ends = connected();
    SAY(shutdown(ends.a, SHUT_RDWR));
    await(ends.b, POLLRDHUP);
    say_events("b", ends.b);
    SAY(recv(ends.a, got, 16, 0));
    SAY(recv(ends.b, got, 16, 0));
    SAY(send(ends.a, "x", 1, MSG_NOSIGNAL));
    SAY(shutdown(ends.b, SHUT_WR));
    await(ends.a, POLLHUP);
    say_events("a", ends.a);
    SAY(getpeername(ends.b, (struct sockaddr *)got, &(socklen_t){16}));
    close_both(ends);
}

static void closed(void) {
    title("close");
    struct ends ends = connected();
    char got[16];
    SAY(send(ends.a, "last words", 10, 0));
    SAY(close(ends.a));
    await(ends.b, POLLRDHUP);
    say_events("b", ends.b);
    SAY(recv(ends.b, got, 4, 0));
    SAY(recv(ends.b, got, 16, 0));
    SAY(recv(ends.b, got, 16, 0));
    say_events("b", ends.b);
    /* Nothing is answered by nothing, however often. */
    SAY(send(ends.b, "", 0, MSG_NOSIGNAL));
    SAY(send(ends.b, "", 0, MSG_NOSIGNAL));
    /* The first byte is answered by a reset, and then there is nobody to send to. */
    SAY(send(ends.b, "x", 1, MSG_NOSIGNAL));
    await(ends.b, POLLHUP);
    say_events("b", ends.b);
    SAY(send(ends.b, "x", 1, MSG_NOSIGNAL));
    SAY(recv(ends.b, got, 16, 0));
    say_events("b", ends.b);
    SAY(send(ends.b, "x", 1, MSG_NOSIGNAL));
    close(ends.b);
}

static void unread(void) {
    title("close with bytes unread");
    struct ends ends = connected();
    char got[16];
    SAY(send(ends.b, "for a", 5, 0));
    await_bytes(ends.a, 5);
    SAY(send(ends.a, "for b", 5, 0));
    await_bytes(ends.b, 5);
    SAY(close(ends.a));
    await(ends.b, POLLHUP);
    say_events("b", ends.b);
    printf("error %d\n", option_of(ends.b, SOL_SOCKET, SO_ERROR));
    printf("error %d\n", option_of(ends.b, SOL_SOCKET, SO_ERROR));
    say_events("b", ends.b);
    SAY(send(ends.b, "x", 1, MSG_NOSIGNAL));
    close(ends.b);
    title("close with bytes unread, receiving");
    ends = connected();
    SAY(send(ends.b, "for a", 5, 0));
    await_bytes(ends.a, 5);
    SAY(close(ends.a));
    await(ends.b, POLLHUP);
    SAY(recv(ends.b, got, 16, 0));
    SAY(recv(ends.b, got, 16, 0));
    SAY(send(ends.b, "x", 1, MSG_NOSIGNAL));
    close(ends.b);
    title("close with bytes unread, sending");
    ends = connected();
    SAY(send(ends.b, "for a", 5, 0));
    await_bytes(ends.a, 5);
    SAY(close(ends.a));
    await(ends.b, POLLHUP);
    SAY(send(ends.b, "x", 1, MSG_NOSIGNAL));
    SAY(send(ends.b, "x", 1, MSG_NOSIGNAL));
    SAY(recv(ends.b, got, 16, 0));
    close(ends.b);
}

static void lingering(void) {
    struct linger lingers[] = {{1, 0}, {1, 2}, {0, 0}};
    char got[16];
    for (int index = 0; index < 3; index++) {
        title("SO_LINGER %d %d", lingers[index].l_onoff, lingers[index].l_linger);
        struct ends ends = connected();
        SAY(setsockopt(ends.a, SOL_SOCKET, SO_LINGER, &lingers[index], sizeof(struct linger)));
        struct linger told = {9, 9};
        socklen_t length = sizeof told;
        SAY(getsockopt(ends.a, SOL_SOCKET, SO_LINGER, &told, &length));
        printf("%d %d %u\n", told.l_onoff, told.l_linger, length);
        if (index > 0)
            SAY(send(ends.a, "words", 5, 0));
        SAY(close(ends.a));
        await(ends.b, index == 0 ? POLLHUP : POLLRDHUP);
        say_events("b", ends.b);
        SAY(recv(ends.b, got, 16, 0));
        SAY(recv(ends.b, got, 16, 0));
        close(ends.b);
    }
}

static void dying(int how) {
    title("a peer that ends by %d", how);
    int listener = listening(1);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        int fd = connected_to(port_of(listener));
        close(listener);
        send_all(fd, "last words", 10);
        char byte;
        recv(fd, &byte, 1, 0);
        if (how == 0)
            _exit(0);
        raise(how);
    }
    int fd = (int)MUST(accept(listener, NULL, NULL));
    close(listener);
    char got[16];
    SAY(recv(fd, got, 10, MSG_WAITALL));
    SAY(send(fd, "x", 1, 0));
    int status;
    MUST(waitpid(child, &status, 0));
    printf("status %x\n", status);
    await(fd, POLLRDHUP);
    SAY(recv(fd, got, 10, 0));
    SAY(recv(fd, got, 10, 0));
    SAY(send(fd, "x", 1, MSG_NOSIGNAL));
    await(fd, POLLHUP);
    SAY(send(fd, "x", 1, MSG_NOSIGNAL));
    close(fd);
}

static volatile sig_atomic_t pipes;
static void on_pipe(int number) {
    (void)number;
    pipes++;
}

static void broken_pipe(void) {
    title("SIGPIPE");
    signal(SIGPIPE, on_pipe);
    struct ends ends = connected();
    shutdown(ends.a, SHUT_WR);
    SAY(send(ends.a, "x", 1, 0));
    printf("signals %d\n", pipes);
    SAY(send(ends.a, "x", 1, MSG_NOSIGNAL));
    printf("signals %d\n", pipes);
    SAY(write(ends.a, "x", 1));
    printf("signals %d\n", pipes);
    struct iovec part = {"x", 1};
    SAY(writev(ends.a, &part, 1));
    printf("signals %d\n", pipes);
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    SAY(sendmsg(ends.a, &message, 0));
    printf("signals %d\n", pipes);
    SAY(write(ends.a, "", 0));
    printf("signals %d\n", pipes);
    close_both(ends);
    signal(SIGPIPE, SIG_DFL);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        ends = connected();
        shutdown(ends.a, SHUT_WR);
        send(ends.a, "x", 1, 0);
        _exit(7);
    }
    int status;
    MUST(waitpid(child, &status, 0));
    printf("killed by SIGPIPE: %d\n", WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE);
    signal(SIGPIPE, SIG_IGN);
}

static void *close_later(void *argument) {
    await_main_blocked();
    shutdown(*(int *)argument, SHUT_RDWR);
    return NULL;
}

static void woken(void) {
    title("woken by an end");
    char got[16];
    pthread_t thread;
    struct ends ends = connected();
    pthread_create(&thread, NULL, close_later, &ends.a);
    SAY(recv(ends.b, got, 16, 0));
    pthread_join(thread, NULL);
    close_both(ends);
    /* By another thread, on the same descriptor. */
    ends = connected();
    pthread_create(&thread, NULL, close_later, &ends.b);
    SAY(recv(ends.b, got, 16, 0));
    pthread_join(thread, NULL);
    close_both(ends);
    ends = connected();
    pthread_create(&thread, NULL, close_later, &ends.b);
    struct pollfd wanted = {.fd = ends.b, .events = POLLIN | POLLRDHUP};
    SAY(poll(&wanted, 1, LONG_MS));
    pthread_join(thread, NULL);
    close_both(ends);
    /* A listener that is shut down wakes who accepts. */
    int listener = listening(1);
    pthread_create(&thread, NULL, close_later, &listener);
    SAY(accept(listener, NULL, NULL));
    pthread_join(thread, NULL);
    close(listener);
    /* A sender that waits for room. */
    ends = connected();
    nonblocking(ends.a);
    static char bytes[1 << 16];
    while (send(ends.a, bytes, sizeof bytes, MSG_NOSIGNAL) > 0)
        ;
    blocking(ends.a);
    pthread_create(&thread, NULL, close_later, &ends.a);
    long sent;
    while ((sent = send(ends.a, bytes, sizeof bytes, MSG_NOSIGNAL)) > 0)
        ;
    said("send", sent);
    pthread_join(thread, NULL);
    close_both(ends);
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    one_half();
    no_more_reading();
    closed();
    unread();
    lingering();
    dying(0);
    dying(SIGKILL);
    dying(SIGABRT);
    broken_pipe();
    woken();
    return 0;
}
