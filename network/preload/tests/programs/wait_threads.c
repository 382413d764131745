/* Several threads in one set, by one shot; another adds members meanwhile. */
#include "wait.h"

enum { THREADS = 4, CONNECTIONS = 20, ROUNDS = 100 };

static int set, stop;
static long handled;

static void *work(void *argument)
{
    (void)argument;
    for (;;) {
        struct epoll_event event;
        if (epoll_wait(set, &event, 1, -1) != 1)
            continue;
        int fd = event.data.u64;
        if (fd == stop)
            return NULL;
        char bytes[64];
        ssize_t got = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
        if (got > 0) {
            __atomic_add_fetch(&handled, got, __ATOMIC_SEQ_CST);
            send_all(fd, bytes, got);
        }
        CHECK(control(set, EPOLL_CTL_MOD, fd, EPOLLIN | EPOLLONESHOT, fd) == 0);
    }
}

int main(void)
{
    pthread_t threads[THREADS];
    int ends[CONNECTIONS][2];
    set = epoll_create1(0);
    stop = eventfd(0, 0);
    for (int number = 0; number < THREADS; number++)
        CHECK(pthread_create(&threads[number], NULL, work, NULL) == 0);
    for (int number = 0; number < CONNECTIONS; number++) {
        join(ends[number]);
        CHECK(control(set, EPOLL_CTL_ADD, ends[number][1], EPOLLIN | EPOLLONESHOT, ends[number][1]) == 0);
    }
    for (int round = 0; round < ROUNDS; round++) {
        char bytes[10], got[10];
        memset(bytes, round, sizeof bytes);
        for (int number = 0; number < CONNECTIONS; number++)
            send_all(ends[number][0], bytes, sizeof bytes);
        for (int number = 0; number < CONNECTIONS; number++) {
            CHECK(recv(ends[number][0], got, sizeof got, MSG_WAITALL) == sizeof got);
            CHECK(memcmp(bytes, got, sizeof got) == 0);
        }
    }
    CHECK(control(set, EPOLL_CTL_ADD, stop, EPOLLIN, stop) == 0);
    uint64_t one = 1;
    CHECK(write(stop, &one, sizeof one) == sizeof one);
    for (int number = 0; number < THREADS; number++)
        pthread_join(threads[number], NULL);
    printf("handled %ld\n", handled);
    return 0;
}
