/* select, pselect, poll, ppoll and epoll, with the kernel's descriptors among the sockets. */
#include "calls.h"

static void say_waited(const char *what, int epoll, int limit_ms) {
    struct epoll_event events[16];
    int count = epoll_wait(epoll, events, 16, limit_ms);
    printf("%s: %d", what, count);
    if (count == -1)
        printf(" %s", strerrorname_np(errno));
    /* The kernel's order is of becoming ready; ours is of the words. */
    for (uint64_t word = 0; word < 64; word++)
        for (int index = 0; index < count; index++)
            if (events[index].data.u64 == word)
                printf(" %lu:%s", word, bits(events[index].events));
    printf("\n");
    fflush(stdout);
}

static int control(int epoll, int operation, int fd, uint32_t events, uint64_t word) {
    struct epoll_event event = {.events = events, .data.u64 = word};
    return epoll_ctl(epoll, operation, fd, &event);
}

/* A socket and the two ends of a pipe. */
static void choose(const int fds[3], fd_set *in, fd_set *out, fd_set *other) {
    FD_ZERO(in);
    FD_ZERO(out);
    FD_ZERO(other);
    FD_SET(fds[0], in);
    FD_SET(fds[1], in);
    FD_SET(fds[0], out);
    FD_SET(fds[2], out);
    FD_SET(fds[0], other);
}

static void say_chosen(const int fds[3], fd_set *in, fd_set *out, fd_set *other) {
    printf("in %d %d out %d %d other %d\n", FD_ISSET(fds[0], in) != 0, FD_ISSET(fds[1], in) != 0,
           FD_ISSET(fds[0], out) != 0, FD_ISSET(fds[2], out) != 0, FD_ISSET(fds[0], other) != 0);
}

static void selects(void) {
    title("select");
    struct ends ends = connected();
    int pipes[2];
    MUST(pipe(pipes));
    int most = pipes[1] + 1;
    fd_set in, out, other;
    struct timeval limit = {0, 10000};
    char got[16];
    int ours[] = {ends.b, pipes[0], pipes[1]};
#define CHOOSE() choose(ours, &in, &out, &other)
#define CHOSEN() say_chosen(ours, &in, &out, &other)
    CHOOSE();
    SAY(select(most, &in, &out, &other, &limit));
    CHOSEN();
    SAY(send(ends.a, "x", 1, 0));
    await_bytes(ends.b, 1);
    CHOOSE();
    SAY(select(most, &in, &out, NULL, NULL));
    CHOSEN();
    SAY(write(pipes[1], "y", 1));
    CHOOSE();
    SAY(select(most, &in, NULL, NULL, NULL));
    CHOSEN();
    SAY(recv(ends.b, got, 16, 0));
    CHOOSE();
    SAY(select(most, &in, NULL, &other, NULL));
    CHOSEN();
    read(pipes[0], got, 1);
    limit = (struct timeval){0, 20000};
    CHOOSE();
    long began = now_ms();
    SAY(select(most, &in, NULL, &other, &limit));
    CHOSEN();
    printf("waited %d, left %ld %ld\n", now_ms() - began >= 19, limit.tv_sec, limit.tv_usec);
    struct timespec nap = {0, 1000000};
    CHOOSE();
    SAY(pselect(most, &in, NULL, NULL, &nap, NULL));
    CHOSEN();
    printf("left %ld %ld\n", nap.tv_sec, nap.tv_nsec);
    SAY(select(0, NULL, NULL, NULL, &limit));
    limit.tv_usec = -1;
    SAY(select(0, NULL, NULL, NULL, &limit));
    SAY(select(-1, NULL, NULL, NULL, NULL));
    shutdown(ends.a, SHUT_WR);
    CHOOSE();
    SAY(select(most, &in, &out, &other, NULL));
    CHOSEN();
    int gone = ends.b;
    close(ends.b);
    FD_ZERO(&in);
    FD_SET(gone, &in);
    SAY(select(most, &in, NULL, NULL, NULL));
    close(ends.a);
    close(pipes[0]);
    close(pipes[1]);
}

static void polls(void) {
    title("poll");
    struct ends ends = connected();
    int pipes[2];
    char got[16];
    MUST(pipe(pipes));
    int listener = listening(2);
    struct pollfd wanted[6] = {{ends.a, POLLIN, 0},  {ends.b, POLLIN | POLLOUT, 0}, {pipes[0], POLLIN, 0},
                               {listener, POLLIN, 0}, {-1, POLLIN, -1},              {1 << 18, POLLIN, 0}};
#define TELL()                                                                                                         \
    for (int index = 0; index < 6; index++)                                                                            \
    printf("  %d %s\n", index, bits((unsigned short)wanted[index].revents))
    SAY(poll(wanted, 5, 0));
    TELL();
    SAY(poll(wanted, 6, 0));
    TELL();
    wanted[1].events = POLLIN | POLLRDNORM;
    long began = now_ms();
    SAY(poll(wanted, 5, 20));
    printf("waited %d\n", now_ms() - began >= 19);
    send(ends.a, "x", 1, 0);
    SAY(poll(wanted, 5, -1));
    TELL();
    write(pipes[1], "y", 1);
    int fd = connected_to(port_of(listener));
    await(listener, POLLIN);
    SAY(poll(wanted, 5, LONG_MS));
    TELL();
    struct timespec limit = {0, 5000000};
    SAY(ppoll(wanted, 5, &limit, NULL));
    printf("left %ld %ld\n", limit.tv_sec, limit.tv_nsec);
    recv(ends.b, got, 16, 0);
    read(pipes[0], got, 16);
    close(accept(listener, NULL, NULL));
    SAY(ppoll(wanted, 5, &limit, NULL));
    SAY(poll(NULL, 0, 5));
    /* The same descriptor twice, with different wishes. */
    struct pollfd twice[2] = {{ends.b, POLLIN, 0}, {ends.b, POLLOUT | POLLWRNORM, 0}};
    SAY(poll(twice, 2, 1000));
    printf("%s\n", bits((unsigned short)twice[0].revents));
    printf("%s\n", bits((unsigned short)twice[1].revents));
    /* Without a wish an end still shows. */
    wanted[1].events = 0;
    shutdown(ends.a, SHUT_WR);
    await(ends.b, POLLRDHUP);
    SAY(poll(wanted + 1, 1, 0));
    shutdown(ends.b, SHUT_WR);
    await(ends.b, POLLHUP);
    SAY(poll(wanted + 1, 1, 0));
    printf("%s\n", bits((unsigned short)wanted[1].revents));
    close(fd);
    close(listener);
    close(pipes[0]);
    close(pipes[1]);
    close_both(ends);
}

static void level(void) {
    title("level-triggered epoll");
    int epoll = SAY_OK(epoll_create1(EPOLL_CLOEXEC));
    struct ends ends = connected();
    int pipes[2];
    char got[16];
    MUST(pipe(pipes));
    SAY(control(epoll, EPOLL_CTL_ADD, ends.a, EPOLLIN, 1));
    SAY(control(epoll, EPOLL_CTL_ADD, ends.b, EPOLLIN | EPOLLRDHUP, 2));
    SAY(control(epoll, EPOLL_CTL_ADD, pipes[0], EPOLLIN, 3));
    SAY(control(epoll, EPOLL_CTL_ADD, ends.b, EPOLLIN, 4));
    SAY(control(epoll, EPOLL_CTL_MOD, pipes[1], EPOLLOUT, 4));
    SAY(control(epoll, EPOLL_CTL_DEL, pipes[1], 0, 0));
    SAY(control(epoll, EPOLL_CTL_ADD, epoll, EPOLLIN, 0));
    SAY(control(epoll, EPOLL_CTL_ADD, 1 << 18, EPOLLIN, 0));
    SAY(control(epoll, 77, ends.a, EPOLLIN, 0));
    SAY(control(ends.a, EPOLL_CTL_ADD, ends.b, EPOLLIN, 0));
    SAY(epoll_ctl(epoll, EPOLL_CTL_MOD, ends.a, NULL));
    say_waited("nothing", epoll, 0);
    long began = now_ms();
    say_waited("nothing for a while", epoll, 20);
    printf("waited %d\n", now_ms() - began >= 19);
    send(ends.a, "x", 1, 0);
    say_waited("bytes", epoll, LONG_MS);
    say_waited("again", epoll, LONG_MS);
    write(pipes[1], "y", 1);
    say_waited("and the pipe", epoll, LONG_MS);
    recv(ends.b, got, 16, 0);
    say_waited("the pipe", epoll, LONG_MS);
    read(pipes[0], got, 16);
    say_waited("nothing", epoll, 0);
    SAY(control(epoll, EPOLL_CTL_MOD, ends.a, EPOLLIN | EPOLLOUT, 5));
    say_waited("room", epoll, LONG_MS);
    SAY(control(epoll, EPOLL_CTL_MOD, ends.a, 0, 5));
    say_waited("no wish", epoll, 0);
    shutdown(ends.a, SHUT_WR);
    say_waited("half closed", epoll, LONG_MS);
    shutdown(ends.b, SHUT_WR);
    await(ends.a, POLLHUP);
    await(ends.b, POLLHUP);
    say_waited("both halves", epoll, LONG_MS);
    SAY(control(epoll, EPOLL_CTL_DEL, ends.b, 0, 0));
    say_waited("one less", epoll, LONG_MS);
    close(ends.a);
    say_waited("closed", epoll, 0);
    struct epoll_event event;
    SAY(epoll_wait(epoll, &event, 0, 0));
    SAY(epoll_wait(epoll, &event, -1, 0));
    SAY(epoll_wait(pipes[0], &event, 1, 0));
    SAY(epoll_wait(1 << 18, &event, 1, 0));
    close(ends.b);
    close(pipes[0]);
    close(pipes[1]);
    close(epoll);
}

static void edge(void) {
    title("edge-triggered epoll");
    int epoll = epoll_create(1);
    struct ends ends = connected();
    char got[16];
    SAY(control(epoll, EPOLL_CTL_ADD, ends.b, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, 1));
    say_waited("first", epoll, LONG_MS);
    say_waited("no more", epoll, 0);
    send(ends.a, "abcdef", 6, 0);
    await_bytes(ends.b, 6);
    say_waited("bytes", epoll, LONG_MS);
    say_waited("no more", epoll, 0);
    recv(ends.b, got, 3, 0);
    say_waited("some are left", epoll, 0);
    send(ends.a, "ghi", 3, 0);
    await_bytes(ends.b, 6);
    say_waited("more bytes", epoll, LONG_MS);
    recv(ends.b, got, 16, 0);
    say_waited("taken", epoll, 0);
    send(ends.a, "jkl", 3, 0);
    await_bytes(ends.b, 3);
    SAY(control(epoll, EPOLL_CTL_MOD, ends.b, EPOLLIN | EPOLLET, 2));
    say_waited("after the change", epoll, LONG_MS);
    say_waited("no more", epoll, 0);
    SAY(control(epoll, EPOLL_CTL_MOD, ends.b, EPOLLIN | EPOLLET, 2));
    say_waited("after the same change", epoll, LONG_MS);
    recv(ends.b, got, 16, 0);
    shutdown(ends.a, SHUT_WR);
    await(ends.b, POLLRDHUP);
    say_waited("half closed", epoll, LONG_MS);
    say_waited("no more", epoll, 0);
    /* Bytes and room that came before the descriptor was added are an edge. */
    int other = epoll_create1(0);
    SAY(control(other, EPOLL_CTL_ADD, ends.b, EPOLLIN | EPOLLET, 3));
    say_waited("the other set", other, LONG_MS);
    say_waited("no more", other, 0);
    close(other);
    close_both(ends);
    title("an edge when there is room again");
    ends = connected();
    nonblocking(ends.a);
    static char bytes[1 << 16];
    SAY(control(epoll, EPOLL_CTL_ADD, ends.a, EPOLLOUT | EPOLLET, 4));
    say_waited("first", epoll, LONG_MS);
    uint64_t sent = 0;
    for (ssize_t count; (count = send(ends.a, bytes, sizeof bytes, 0)) > 0;)
        sent += (uint64_t)count;
    say_waited("full", epoll, 0);
    while (sent > 0)
        sent -= (uint64_t)MUST(recv(ends.b, bytes, sizeof bytes < sent ? sizeof bytes : sent, 0));
    say_waited("room", epoll, LONG_MS);
    say_waited("no more", epoll, 0);
    close_both(ends);
    close(epoll);
}

static void once(void) {
    title("EPOLLONESHOT");
    int epoll = epoll_create1(0);
    struct ends ends = connected();
    char got[16];
    SAY(control(epoll, EPOLL_CTL_ADD, ends.b, EPOLLIN | EPOLLONESHOT, 1));
    send(ends.a, "abc", 3, 0);
    say_waited("bytes", epoll, LONG_MS);
    say_waited("no more", epoll, 0);
    send(ends.a, "abc", 3, 0);
    await_bytes(ends.b, 6);
    say_waited("still not", epoll, 0);
    SAY(control(epoll, EPOLL_CTL_MOD, ends.b, EPOLLIN | EPOLLONESHOT, 2));
    say_waited("armed again", epoll, LONG_MS);
    SAY(control(epoll, EPOLL_CTL_MOD, ends.b, EPOLLOUT | EPOLLONESHOT | EPOLLET, 3));
    say_waited("armed for room", epoll, LONG_MS);
    say_waited("no more", epoll, 0);
    recv(ends.b, got, 16, 0);
    shutdown(ends.a, SHUT_RDWR);
    await(ends.b, POLLRDHUP);
    say_waited("an end does not arm it", epoll, 0);
    close_both(ends);
    title("EPOLLEXCLUSIVE");
    int listener = listening(4);
    SAY(control(epoll, EPOLL_CTL_ADD, listener, EPOLLIN | EPOLLEXCLUSIVE, 4));
    SAY(control(epoll, EPOLL_CTL_MOD, listener, EPOLLIN, 4));
    SAY(control(epoll, EPOLL_CTL_DEL, listener, 0, 0));
    SAY(control(epoll, EPOLL_CTL_ADD, listener, EPOLLIN | EPOLLEXCLUSIVE | EPOLLONESHOT, 4));
    SAY(control(epoll, EPOLL_CTL_ADD, listener, EPOLLIN | EPOLLEXCLUSIVE | EPOLLET, 4));
    int a = connected_to(port_of(listener));
    say_waited("a connection", epoll, LONG_MS);
    close(accept(listener, NULL, NULL));
    close(a);
    close(listener);
    close(epoll);
}

static void listeners(void) {
    title("listeners");
    int epoll = epoll_create1(0), edged = epoll_create1(0);
    int listener = nonblocking(listening(16));
    SAY(control(epoll, EPOLL_CTL_ADD, listener, EPOLLIN | EPOLLOUT, 1));
    SAY(control(edged, EPOLL_CTL_ADD, listener, EPOLLIN | EPOLLET, 2));
    say_waited("nothing", epoll, 0);
    say_waited("nothing", edged, 0);
    int a = connected_to(port_of(listener));
    say_waited("a connection", epoll, LONG_MS);
    say_waited("a connection", edged, LONG_MS);
    say_waited("again", epoll, LONG_MS);
    say_waited("no more", edged, 0);
    int second = connected_to(port_of(listener));
    say_waited("another", edged, LONG_MS);
    close(accept(listener, NULL, NULL));
    say_waited("one is left", epoll, LONG_MS);
    close(accept(listener, NULL, NULL));
    say_waited("none is left", epoll, 0);
    SAY(accept(listener, NULL, NULL));
    /* A connection becomes ready in a set before it is connected. */
    int third = nonblocking(socket(AF_INET, SOCK_STREAM, 0));
    SAY(control(epoll, EPOLL_CTL_ADD, third, EPOLLOUT | EPOLLIN, 3));
    struct sockaddr_in address = loopback(port_of(listener));
    int begun = connect(third, (struct sockaddr *)&address, sizeof address);
    printf("begun %d\n", begun == 0 || errno == EINPROGRESS);
    await(third, POLLOUT);
    await(listener, POLLIN);
    say_waited("connected and to be accepted", epoll, LONG_MS);
    int taken = accept(listener, NULL, NULL);
    send(taken, "x", 1, 0);
    await_bytes(third, 1);
    say_waited("bytes", epoll, LONG_MS);
    SAY(control(epoll, EPOLL_CTL_MOD, third, EPOLLIN, 4));
    say_waited("bytes alone", epoll, LONG_MS);
    close(third);
    say_waited("closed", epoll, 0);
    close(taken);
    close(a);
    close(second);
    close(listener);
    close(edged);
    close(epoll);
}

static void sets(void) {
    title("sets in sets, copies of descriptors");
    int outer = epoll_create1(0), inner = epoll_create1(0);
    struct ends ends = connected();
    char got[16];
    SAY(control(inner, EPOLL_CTL_ADD, ends.b, EPOLLIN, 1));
    SAY(control(outer, EPOLL_CTL_ADD, inner, EPOLLIN, 2));
    say_waited("nothing", outer, 0);
    say_events("inner", inner);
    send(ends.a, "x", 1, 0);
    say_waited("outer", outer, LONG_MS);
    say_waited("inner", inner, LONG_MS);
    struct pollfd wanted = {.fd = outer, .events = POLLIN};
    SAY(poll(&wanted, 1, LONG_MS));
    recv(ends.b, got, 16, 0);
    say_waited("outer", outer, 0);
    /* A copy is another member; who closes one leaves the other. */
    int copy = dup(ends.b);
    SAY(control(inner, EPOLL_CTL_ADD, copy, EPOLLIN, 3));
    send(ends.a, "x", 1, 0);
    await_bytes(ends.b, 1);
    say_waited("both", inner, LONG_MS);
    close(ends.b);
    SAY(control(inner, EPOLL_CTL_MOD, ends.b, EPOLLIN, 5));
    SAY(control(inner, EPOLL_CTL_MOD, copy, EPOLLIN, 6));
    SAY(recv(copy, got, 16, 0));
    close(copy);
    say_waited("none", inner, 0);
    close(ends.a);
    int twin = dup(outer);
    SAY(epoll_wait(twin, (struct epoll_event[1]){{0}}, 1, 0));
    close(twin);
    close(inner);
    close(outer);
}

static void *send_slowly(void *argument) {
    int *fds = argument;
    for (int index = 0; index < 200; index++) {
        if (index % 10 == 0)
            await_main_blocked();
        send_all(fds[index % 20], "x", 1);
    }
    return NULL;
}

static void crowd(void) {
    title("a crowd");
    int epoll = epoll_create1(0), near[20], far[20], counts[20] = {0};
    for (int index = 0; index < 20; index++) {
        struct ends ends = connected();
        near[index] = nonblocking(ends.a);
        far[index] = ends.b;
        MUST(control(epoll, EPOLL_CTL_ADD, near[index], EPOLLIN | (index % 2 ? EPOLLET : 0), (uint64_t)index));
    }
    pthread_t thread;
    pthread_create(&thread, NULL, send_slowly, far);
    for (int total = 0; total < 200;) {
        struct epoll_event events[7];
        int count = (int)MUST(epoll_wait(epoll, events, 7, LONG_MS));
        if (count == 0) {
            printf("nothing came any more\n");
            break;
        }
        for (int index = 0; index < count; index++) {
            char got[16];
            ssize_t length;
            while ((length = recv(near[events[index].data.u64], got, sizeof got, 0)) > 0) {
                counts[events[index].data.u64] += (int)length;
                total += (int)length;
            }
        }
    }
    pthread_join(thread, NULL);
    for (int index = 0; index < 20; index++) {
        printf("%d ", counts[index]);
        close(near[index]);
        close(far[index]);
    }
    printf("\n");
    /* Few places for many that are ready: nobody is left out for ever. */
    unsigned seen = 0;
    for (int index = 0; index < 20; index++) {
        struct ends ends = connected();
        near[index] = ends.a;
        far[index] = ends.b;
        MUST(control(epoll, EPOLL_CTL_ADD, near[index], EPOLLIN, (uint64_t)index));
        send_all(far[index], "x", 1);
        await_bytes(near[index], 1);
    }
    for (int round = 0; round < 40; round++) {
        struct epoll_event events[3];
        int count = (int)MUST(epoll_wait(epoll, events, 3, LONG_MS));
        for (int index = 0; index < count; index++)
            seen |= 1u << events[index].data.u64;
    }
    printf("seen %x\n", seen);
    for (int index = 0; index < 20; index++) {
        close(near[index]);
        close(far[index]);
    }
    close(epoll);
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    selects();
    polls();
    level();
    edge();
    once();
    listeners();
    sets();
    crowd();
    return 0;
}
