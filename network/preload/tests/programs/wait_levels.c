/* Levels, one shots, modifications and errors. */
#include "wait.h"

int main(void)
{
    int ends[2], other[2], pipe_ends[2];
    join(ends);
    join(other);
    CHECK(pipe(pipe_ends) == 0);
    int set = epoll_create1(EPOLL_CLOEXEC);
    tell("add", control(set, EPOLL_CTL_ADD, ends[1], EPOLLIN, 1));
    tell("add again", control(set, EPOLL_CTL_ADD, ends[1], EPOLLIN, 1));
    tell("change what is not there", control(set, EPOLL_CTL_MOD, other[1], EPOLLIN, 1));
    tell("delete what is not there", control(set, EPOLL_CTL_DEL, other[1], EPOLLIN, 1));
    tell("no such operation", control(set, 9, ends[1], EPOLLIN, 1));
    tell("itself", control(set, EPOLL_CTL_ADD, set, EPOLLIN, 1));
    tell("not open", control(set, EPOLL_CTL_ADD, 999, EPOLLIN, 1));
    tell("not a set", control(pipe_ends[0], EPOLL_CTL_ADD, ends[0], EPOLLIN, 1));
    tell("exclusive once", control(set, EPOLL_CTL_ADD, other[1], EPOLLIN | EPOLLEXCLUSIVE | EPOLLONESHOT, 1));
    tell("no event", epoll_ctl(set, EPOLL_CTL_ADD, other[1], NULL));
    struct epoll_event events[4];
    tell("no room", epoll_wait(set, events, 0, 0));
    tell("not a set", epoll_wait(pipe_ends[0], events, 4, 0));
    tell("not open", epoll_wait(999, events, 4, 0));
    tell_wait("nothing", set, 0);
    tell_wait("nothing for a while", set, 20);
    send_all(ends[0], "abc", 3);
    tell_wait("three bytes", set, -1);
    tell_wait("three bytes", set, 0);
    tell("read", read(ends[1], events, 2));
    tell_wait("one byte", set, -1);
    tell("read", read(ends[1], events, 2));
    tell_wait("none", set, 0);
    tell("change", control(set, EPOLL_CTL_MOD, ends[1], EPOLLIN | EPOLLOUT | EPOLLRDHUP, 2));
    tell_wait("room", set, -1);
    tell("add", control(set, EPOLL_CTL_ADD, other[1], EPOLLIN | EPOLLONESHOT, 3));
    tell("add", control(set, EPOLL_CTL_ADD, pipe_ends[0], EPOLLIN, 4));
    send_all(other[0], "x", 1);
    send_all(pipe_ends[1], "x", 1);
    tell_wait("three members", set, -1);
    tell_wait("one shot is over", set, -1);
    tell("change", control(set, EPOLL_CTL_MOD, other[1], EPOLLIN | EPOLLONESHOT, 5));
    tell_wait("and again", set, -1);
    tell("shutdown", shutdown(ends[0], SHUT_WR));
    tell_wait("the end", set, -1);
    tell("delete", epoll_ctl(set, EPOLL_CTL_DEL, pipe_ends[0], NULL));
    tell("change", control(set, EPOLL_CTL_MOD, ends[1], 0, 6));
    tell_wait("nothing asked", set, 20);
    tell("shutdown", shutdown(ends[1], SHUT_WR));
    tell_wait("both ends", set, -1);
    close(ends[1]);
    tell_wait("closed", set, 0);
    struct linger linger = {1, 0};
    tell("change", control(set, EPOLL_CTL_MOD, other[1], EPOLLIN | EPOLLRDHUP, 7));
    tell("linger", setsockopt(other[0], SOL_SOCKET, SO_LINGER, &linger, sizeof linger));
    close(other[0]);
    tell_wait("reset", set, -1);
    int error = 0;
    socklen_t size = sizeof error;
    tell("error", getsockopt(other[1], SOL_SOCKET, SO_ERROR, &error, &size));
    tell("which", error);
    tell("delete", epoll_ctl(set, EPOLL_CTL_DEL, other[1], NULL));
    tell("delete again", epoll_ctl(set, EPOLL_CTL_DEL, other[1], NULL));
    close(set);
    tell("closed", epoll_wait(set, events, 4, 0));
    return 0;
}
