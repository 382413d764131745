/* Functions that all programs that wait share. */
#ifndef WAIT_H
#define WAIT_H
#include "fixture.h"
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/timerfd.h>

/* Bits that both kinds of connections have at the same time; room depends on buffer sizes. */
static inline void tell_events(const char *what, uint32_t events)
{
    printf("%s:%s%s%s%s%s%s%s\n", what, events & EPOLLIN ? " in" : "", events & EPOLLOUT ? " out" : "",
           events & EPOLLRDHUP ? " rdhup" : "", events & EPOLLHUP ? " hup" : "", events & EPOLLERR ? " err" : "",
           events & EPOLLPRI ? " pri" : "",
           events & ~(EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLHUP | EPOLLERR | EPOLLPRI) ? " more" : "");
    fflush(stdout);
}

static inline int control(int set, int operation, int fd, uint32_t events, uint64_t data)
{
    struct epoll_event event = {.events = events, .data.u64 = data};
    return epoll_ctl(set, operation, fd, &event);
}

static int compare(const void *one, const void *other)
{
    uint64_t a = ((const struct epoll_event *)one)->data.u64, b = ((const struct epoll_event *)other)->data.u64;
    return a < b ? -1 : a > b;
}

/* Prints the events of a wait, in the order of the data. */
static inline int tell_wait(const char *what, int set, int timeout)
{
    struct epoll_event events[64];
    int count = epoll_wait(set, events, 64, timeout);
    /* The levels of all members, however few one wait reports. */
    for (int round = 0; round < 40 && count >= 0 && count < 32; round++) {
        int more = epoll_wait(set, events + count, 64 - count, 0);
        CHECK(more >= 0);
        for (int place = count, end = count + more; place < end; place++) {
            int known = 0;
            while (known < count && events[known].data.u64 != events[place].data.u64)
                known++;
            if (known == count)
                events[count++] = events[place];
        }
    }
    tell(what, count);
    if (count > 0)
        qsort(events, count, sizeof events[0], compare);
    for (int place = 0; place < count; place++) {
        char name[32];
        snprintf(name, sizeof name, "  %llu", (unsigned long long)events[place].data.u64);
        tell_events(name, events[place].events);
    }
    return count;
}

static inline void set_nonblocking(int fd)
{
    CHECK(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) == 0);
}

/* Reads until there are no bytes. */
static inline long read_all(int fd)
{
    char bytes[65536];
    long total = 0;
    ssize_t got;
    while ((got = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT)) > 0)
        total += got;
    return total;
}

/* Writes until there is no room. */
static inline long fill(int fd)
{
    static char bytes[65536];
    long total = 0;
    ssize_t put;
    while ((put = send(fd, bytes, sizeof bytes, MSG_DONTWAIT)) > 0)
        total += put;
    return total;
}
#endif
