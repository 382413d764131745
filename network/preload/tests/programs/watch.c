/* Threads that wait for a listener from which another process accepts. What comes by the standard input is answered
 * with how often a wait of each has ended. */
#include "bed.h"
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/prctl.h>

static int listener;
static atomic_int polls, epolls;

static void *by_poll(void *unused)
{
    struct pollfd member = {.fd = listener, .events = POLLIN};
    for (;; polls++)
        CHECK(poll(&member, 1, -1) == 1);
    return unused;
}

static void *by_epoll(void *unused)
{
    struct epoll_event event = {.events = EPOLLIN};
    int set = epoll_create1(0);
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, listener, &event) == 0);
    for (;; epolls++)
        CHECK(epoll_wait(set, &event, 1, -1) == 1);
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
    CHECK(pthread_create(&thread, NULL, by_poll, NULL) == 0);
    CHECK(pthread_create(&thread, NULL, by_epoll, NULL) == 0);
    while (read(0, &byte, 1) == 1) {
        int counts[] = {polls, epolls};
        CHECK(write(1, counts, sizeof counts) == sizeof counts);
    }
    return 0;
}
