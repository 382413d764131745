/* Cancellation of threads in every kind of wait; their descriptors stay usable. */
#include "wait.h"
#include "blocked.h"

static int ends[2], listener, set, pipes[2];
static struct sockaddr_in address;

static long wait_by(int way)
{
    char bytes[16];
    struct pollfd member = {ends[1], POLLIN, 0};
    struct epoll_event event;
    struct iovec piece = {bytes, 16};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    fd_set wanted;
    FD_ZERO(&wanted);
    FD_SET(ends[1], &wanted);
    static char space[1 << 16];
    switch (way) {
    case 0: return recv(ends[1], bytes, 16, 0);
    case 1: return read(ends[1], bytes, 16);
    case 2: return recvmsg(ends[1], &message, 0);
    case 3: return poll(&member, 1, -1);
    case 4: return select(ends[1] + 1, &wanted, NULL, NULL, NULL);
    case 5: return epoll_wait(set, &event, 1, -1);
    case 6: return accept(listener, NULL, NULL);
    case 7: return read(pipes[0], bytes, 16);
    case 8: return epoll_wait(set, &event, 1, 100000);
    default:
        for (;;)
            send(ends[1], space, sizeof space, 0);
    }
}

static volatile int is_cleaned;
/* The thread that is about to wait. */
static volatile pid_t waiter;

static void clean(void *argument)
{
    (void)argument;
    is_cleaned = 1;
}

static void *wait_for(void *way)
{
    pthread_cleanup_push(clean, NULL);
    waiter = gettid();
    wait_by((int)(intptr_t)way);
    pthread_cleanup_pop(0);
    return NULL;
}

/* A deferred request is no error of the call, and takes effect at the next cancellation point. */
static void *wait_unheard(void *argument)
{
    (void)argument;
    char bytes[16];
    int before;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    waiter = gettid();
    tell("recv", recv(ends[1], bytes, 16, 0));
    pthread_setcancelstate(before, NULL);
    send(ends[1], "x", 1, 0);
    printf("not reached\n");
    return NULL;
}

static void cancel(void *(*work)(void *), int way, int rounds)
{
    int cancelled = 0, cleaned = 0;
    for (int round = 0; round < rounds; round++) {
        pthread_t thread;
        void *result;
        waiter = is_cleaned = 0;
        CHECK(pthread_create(&thread, NULL, work, (void *)(intptr_t)way) == 0);
        while (!waiter)
            sched_yield();
        /* Sometimes before the thread sleeps. */
        if (round % 2)
            await_thread_blocked(&waiter);
        CHECK(pthread_cancel(thread) == 0);
        if (work == wait_unheard) {
            await_thread_blocked(&waiter);
            send_all(ends[0], "late", 4);
        }
        pthread_join(thread, &result);
        cancelled += result == PTHREAD_CANCELED;
        cleaned += is_cleaned;
    }
    printf("%d: cancelled %d cleaned %d\n", way, cancelled, cleaned);
    fflush(stdout);
}

int main(void)
{
    char bytes[16];
    join(ends);
    listener = listen_at(&address);
    CHECK(pipe(pipes) == 0);
    set = epoll_create1(0);
    control(set, EPOLL_CTL_ADD, ends[1], EPOLLIN, 1);
    for (int way = 0; way < 10; way++) {
        cancel(wait_for, way, 20);
        if (way == 9)
            break;
        /* Neither locks nor pins remain. */
        send_all(ends[0], "still", 5);
        tell_wait("set", set, -1);
        tell("recv", recv(ends[1], bytes, 16, 0));
    }
    join(ends);
    cancel(wait_unheard, 0, 3);
    /* Another thread is cancelled while this one waits. */
    pthread_t one, other;
    void *result;
    waiter = 0;
    pthread_create(&one, NULL, wait_for, (void *)0);
    await_thread_blocked(&waiter);
    waiter = 0;
    pthread_create(&other, NULL, wait_for, (void *)0);
    await_thread_blocked(&waiter);
    CHECK(pthread_cancel(one) == 0);
    pthread_join(one, &result);
    printf("cancelled %d\n", result == PTHREAD_CANCELED);
    send_all(ends[0], "x", 1);
    pthread_join(other, &result);
    printf("cancelled %d\n", result == PTHREAD_CANCELED);
    return 0;
}
