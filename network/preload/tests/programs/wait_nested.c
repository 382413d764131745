/* A set within a set, and within a poll; a copy of a set's number. */
#include "wait.h"

int main(void)
{
    int ends[2], pipe_ends[2];
    char bytes[16];
    int outer = epoll_create1(0), inner = epoll_create1(0);
    CHECK(pipe(pipe_ends) == 0);
    tell("nest", control(outer, EPOLL_CTL_ADD, inner, EPOLLIN, 1));
    tell("loop", control(inner, EPOLL_CTL_ADD, outer, EPOLLIN, 1));
    join(ends);
    tell("add", control(inner, EPOLL_CTL_ADD, ends[1], EPOLLIN, 2));
    tell("add", control(inner, EPOLL_CTL_ADD, pipe_ends[0], EPOLLIN, 3));
    tell_wait("nothing", outer, 20);
    send_all(ends[0], "abc", 3);
    tell_wait("outer", outer, -1);
    tell_wait("inner", inner, -1);
    struct pollfd member = {inner, POLLIN, 0};
    tell("poll", poll(&member, 1, -1));
    tell_events("  inner", member.revents);
    tell("read", read(ends[1], bytes, sizeof bytes));
    tell_wait("nothing", outer, 20);
    tell("poll", poll(&member, 1, 20));
    send_all(pipe_ends[1], "abc", 3);
    tell_wait("outer", outer, -1);
    tell_wait("inner", inner, -1);
    int copy = dup(inner);
    send_all(ends[0], "abc", 3);
    close(inner);
    tell_wait("copy", copy, -1);
    tell_wait("outer", outer, -1);
    tell("read", read(ends[1], bytes, sizeof bytes));
    tell("delete", epoll_ctl(copy, EPOLL_CTL_DEL, ends[1], NULL));
    tell_wait("copy", copy, -1);
    close(copy);
    tell_wait("outer", outer, 20);
    return 0;
}
