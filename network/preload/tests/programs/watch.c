/* Threads that wait for a listener from which another process accepts: by poll, by a set each, and by one set
 * together. Each byte of the standard input is answered with the number of waits that have ended, by kind. */
#include "fixture.h"
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/prctl.h>

#define THREADS 4

static int listener, common;
static atomic_int polls, sets, commons;

static void *by_poll(void *unused)
{
    struct pollfd member = {.fd = listener, .events = POLLIN};
    for (;; polls++)
        CHECK(poll(&member, 1, -1) == 1);
    return unused;
}

static int make_set(void)
{
    struct epoll_event event = {.events = EPOLLIN};
    int set = epoll_create1(0);
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, listener, &event) == 0);
    return set;
}

static void *by_set(void *unused)
{
    struct epoll_event event;
    int set = make_set();
    for (;; sets++)
        CHECK(epoll_wait(set, &event, 1, -1) == 1);
    return unused;
}

static void *by_common(void *unused)
{
    struct epoll_event event;
    for (;; commons++)
        CHECK(epoll_wait(common, &event, 1, -1) == 1);
    return unused;
}

static void serve(int unused)
{
    (void)unused;
    CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
    for (;;)
        close(accept(listener, NULL, NULL));
}

int main(void)
{
    struct sockaddr_in address;
    pthread_t thread;
    char byte;
    listener = listen_at(&address);
    start(serve, 0);
    common = make_set();
    for (int index = 0; index < THREADS; index++) {
        CHECK(pthread_create(&thread, NULL, by_poll, NULL) == 0);
        CHECK(pthread_create(&thread, NULL, by_set, NULL) == 0);
        CHECK(pthread_create(&thread, NULL, by_common, NULL) == 0);
    }
    while (read(0, &byte, 1) == 1) {
        int counts[] = {polls, sets, commons};
        CHECK(write(1, counts, sizeof counts) == sizeof counts);
    }
    return 0;
}
