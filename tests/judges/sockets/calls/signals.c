/* Signals while a call waits, time-outs, and masks. */
#include "calls.h"

static volatile sig_atomic_t heard;
static int to_send = -1;

static void on_signal(int number) {
    (void)number;
    heard++;
    /* A handler may use sockets itself. */
    if (to_send >= 0) {
        int fd = to_send;
        to_send = -1;
        send(fd, "s", 1, MSG_NOSIGNAL);
    }
}

static void handle(int flags) {
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = flags};
    sigaction(SIGALRM, &action, NULL);
}

/* Every so many milliseconds, lest the first comes before the call; 0: no more. */
static void alarm_after_ms(int ms) {
    struct itimerval timer = {{0, ms * 1000}, {0, ms * 1000}};
    setitimer(ITIMER_REAL, &timer, NULL);
}

#define INTERRUPTED(call)                                                                                              \
    do {                                                                                                               \
        heard = 0;                                                                                                     \
        alarm_after_ms(20);                                                                                            \
        SAY(call);                                                                                                     \
        alarm_after_ms(0);                                                                                             \
        printf("heard %d\n", heard > 0);                                                                                   \
    } while (0)

static void interrupted(void) {
    title("without SA_RESTART");
    handle(0);
    struct ends ends = connected();
    char got[16];
    struct pollfd wanted = {.fd = ends.b, .events = POLLIN};
    fd_set in;
    FD_ZERO(&in);
    FD_SET(ends.b, &in);
    int epoll = epoll_create1(0), listener = listening(1);
    struct epoll_event event = {.events = EPOLLIN}, told;
    MUST(epoll_ctl(epoll, EPOLL_CTL_ADD, ends.b, &event));
    struct iovec part = {got, 16};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    struct mmsghdr messages = {.msg_hdr = message};
    INTERRUPTED(recv(ends.b, got, 16, 0));
    INTERRUPTED(read(ends.b, got, 16));
    INTERRUPTED(readv(ends.b, &part, 1));
    INTERRUPTED(recvmsg(ends.b, &message, 0));
    INTERRUPTED(recvmmsg(ends.b, &messages, 1, 0, NULL));
    INTERRUPTED(recv(ends.b, got, 16, MSG_WAITALL));
    INTERRUPTED(recv(ends.b, got, 16, MSG_PEEK));
    INTERRUPTED(accept(listener, NULL, NULL));
    INTERRUPTED(poll(&wanted, 1, -1));
    INTERRUPTED(ppoll(&wanted, 1, NULL, NULL));
    INTERRUPTED(select(ends.b + 1, &in, NULL, NULL, NULL));
    FD_SET(ends.b, &in);
    INTERRUPTED(pselect(ends.b + 1, &in, NULL, NULL, NULL, NULL));
    INTERRUPTED(epoll_wait(epoll, &told, 1, -1));
    INTERRUPTED(epoll_pwait(epoll, &told, 1, LONG_MS, NULL));
    /* Part of what was wanted came before the signal. */
    send_all(ends.a, "12345", 5);
    await_bytes(ends.b, 5);
    INTERRUPTED(recv(ends.b, got, 16, MSG_WAITALL));
    /* A full connection. */
    static char bytes[1 << 16];
    nonblocking(ends.a);
    while (send(ends.a, bytes, sizeof bytes, 0) > 0)
        ;
    blocking(ends.a);
    heard = 0;
    alarm_after_ms(20);
    long sent;
    while ((sent = send(ends.a, bytes, sizeof bytes, 0)) > 0)
        ;
    said("send", sent);
    alarm_after_ms(0);
    printf("heard %d\n", heard > 0);
    close_both(ends);
    close(listener);
    close(epoll);
}

static void *send_later(void *argument) {
    /* A signal comes while the main thread waits, and the main thread waits again. */
    while (heard == 0)
        sched_yield();
    await_main_blocked();
    send_all(*(int *)argument, "late", 4);
    return NULL;
}

static void restarted(void) {
    title("with SA_RESTART");
    handle(SA_RESTART);
    struct ends ends = connected();
    char got[16];
    pthread_t thread;
    sigset_t alarms, before;
    sigemptyset(&alarms);
    sigaddset(&alarms, SIGALRM);
    struct iovec part = {got, 16};
    for (int way = 0; way < 3; way++) {
        heard = 0;
        /* The signal goes to the thread that waits. */
        pthread_sigmask(SIG_BLOCK, &alarms, &before);
        pthread_create(&thread, NULL, send_later, &ends.a);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        if (way == 0)
            INTERRUPTED(recv(ends.b, got, 16, 0));
        else if (way == 1)
            INTERRUPTED(readv(ends.b, &part, 1));
        else
            INTERRUPTED(recv(ends.b, got, 4, MSG_WAITALL));
        pthread_join(thread, NULL);
    }
    struct pollfd wanted = {.fd = ends.b, .events = POLLIN};
    INTERRUPTED(poll(&wanted, 1, LONG_MS));
    int epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN}, told;
    MUST(epoll_ctl(epoll, EPOLL_CTL_ADD, ends.b, &event));
    INTERRUPTED(epoll_wait(epoll, &told, 1, LONG_MS));
    fd_set in;
    FD_ZERO(&in);
    FD_SET(ends.b, &in);
    INTERRUPTED(select(ends.b + 1, &in, NULL, NULL, NULL));
    /* With a time-out a call is not restarted. */
    struct timeval limit = {10, 0};
    MUST(setsockopt(ends.b, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
    INTERRUPTED(recv(ends.b, got, 16, 0));
    close(epoll);
    close_both(ends);
}

static void masked(void) {
    title("masks");
    handle(0);
    struct ends ends = connected();
    sigset_t alarms, none;
    sigemptyset(&none);
    sigemptyset(&alarms);
    sigaddset(&alarms, SIGALRM);
    sigprocmask(SIG_BLOCK, &alarms, NULL);
    struct pollfd wanted = {.fd = ends.b, .events = POLLIN};
    fd_set in;
    FD_ZERO(&in);
    FD_SET(ends.b, &in);
    int epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN}, told;
    MUST(epoll_ctl(epoll, EPOLL_CTL_ADD, ends.b, &event));
    heard = 0;
    raise(SIGALRM);
    SAY(ppoll(&wanted, 1, &(struct timespec){0, 1000000}, NULL));
    printf("heard %d\n", heard);
    SAY(ppoll(&wanted, 1, NULL, &none));
    printf("heard %d\n", heard);
    raise(SIGALRM);
    SAY(pselect(ends.b + 1, &in, NULL, NULL, NULL, &none));
    printf("heard %d\n", heard);
    raise(SIGALRM);
    SAY(epoll_pwait(epoll, &told, 1, LONG_MS, &none));
    printf("heard %d\n", heard);
    raise(SIGALRM);
    SAY(epoll_pwait2(epoll, &told, 1, NULL, &none));
    printf("heard %d\n", heard);
    SAY(epoll_pwait2(epoll, &told, 1, &(struct timespec){0, 5000000}, &alarms));
    /* What is ready goes before a signal that is pending. */
    send_all(ends.a, "x", 1);
    await_bytes(ends.b, 1);
    raise(SIGALRM);
    SAY(ppoll(&wanted, 1, NULL, &none));
    printf("heard %d\n", heard);
    sigprocmask(SIG_UNBLOCK, &alarms, NULL);
    printf("heard %d\n", heard);
    close(epoll);
    close_both(ends);
}

static void in_handlers(void) {
    title("sockets in a handler");
    handle(SA_RESTART);
    struct ends ends = connected(), other = connected();
    char got[16];
    to_send = ends.a;
    INTERRUPTED(recv(ends.b, got, 16, 0));
    to_send = other.a;
    handle(0);
    INTERRUPTED(recv(ends.b, got, 16, 0));
    SAY(recv(other.b, got, 16, 0));
    close_both(ends);
    close_both(other);
}

static void rain(void) {
    title("many signals while bytes move");
    handle(SA_RESTART);
    struct itimerval timer = {{0, 700}, {0, 700}};
    struct ends ends = connected();
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        close(ends.a);
        static uint8_t bytes[5000];
        for (uint64_t place = 0; place < 20000000; place += sizeof bytes) {
            pattern(bytes, sizeof bytes, place);
            send_all(ends.b, bytes, sizeof bytes);
        }
        _exit(0);
    }
    close(ends.b);
    setitimer(ITIMER_REAL, &timer, NULL);
    static uint8_t bytes[7777], expected[7777];
    uint64_t place = 0;
    bool same = true;
    ssize_t length;
    while ((length = recv(ends.a, bytes, sizeof bytes, 0)) > 0) {
        pattern(expected, (size_t)length, place);
        same &= memcmp(bytes, expected, (size_t)length) == 0;
        place += (uint64_t)length;
    }
    timer = (struct itimerval){{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &timer, NULL);
    printf("%zd %lu %d\n", length, place, same);
    int status;
    while (waitpid(child, &status, 0) == -1)
        ;
    printf("status %x\n", status);
    close(ends.a);
}

/* The thread that is to be cancelled. */
static volatile pid_t receiver;

static void *cancelled(void *argument) {
    receiver = gettid();
    char byte;
    recv(*(int *)argument, &byte, 1, 0);
    return NULL;
}

static void cancelling(void) {
    title("a thread that is cancelled");
    struct ends ends = connected();
    pthread_t thread;
    void *result = NULL;
    pthread_create(&thread, NULL, cancelled, &ends.b);
    await_thread_blocked(&receiver);
    SAY(pthread_cancel(thread));
    struct timespec limit;
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += 5;
    int joined = pthread_timedjoin_np(thread, &result, &limit);
    printf("joined %d cancelled %d\n", joined, result == PTHREAD_CANCELED);
    char byte;
    SAY(send(ends.a, "x", 1, 0));
    SAY(recv(ends.b, &byte, 1, 0));
    close_both(ends);
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    interrupted();
    restarted();
    masked();
    in_handlers();
    rain();
    cancelling();
    return 0;
}
