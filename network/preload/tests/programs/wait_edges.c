/* Edges of arrivals, of room, and of the end. */
#include "wait.h"

int main(void)
{
    int ends[2];
    char bytes[16];
    join(ends);
    set_nonblocking(ends[0]);
    set_nonblocking(ends[1]);
    int set = epoll_create1(0);
    tell("add", control(set, EPOLL_CTL_ADD, ends[1], EPOLLIN | EPOLLRDHUP | EPOLLET, 1));
    tell_wait("nothing", set, 0);
    send_all(ends[0], "abcd", 4);
    tell_wait("arrival", set, -1);
    tell_wait("no edge", set, 20);
    send_all(ends[0], "efgh", 4);
    tell_wait("another arrival", set, -1);
    tell("read some", read(ends[1], bytes, 3));
    tell_wait("no edge by reading", set, 20);
    tell("read", read(ends[1], bytes, sizeof bytes));
    tell("read", read(ends[1], bytes, sizeof bytes));
    send_all(ends[0], "ij", 2);
    tell_wait("arrival after all was read", set, -1);
    tell("change", control(set, EPOLL_CTL_MOD, ends[1], EPOLLIN | EPOLLRDHUP | EPOLLET, 2));
    tell_wait("an edge by change", set, -1);
    tell_wait("no edge", set, 0);
    tell("room", control(set, EPOLL_CTL_ADD, ends[0], EPOLLIN | EPOLLOUT | EPOLLET, 3));
    tell_wait("room at first", set, -1);
    tell_wait("no edge", set, 20);
    CHECK(fill(ends[0]) > 0);
    tell_wait("full, and arrivals", set, 20);
    while (read_all(ends[1]) > 0)
        ;
    tell_wait("room again", set, -1);
    tell("delete", epoll_ctl(set, EPOLL_CTL_DEL, ends[0], NULL));
    while (read_all(ends[1]) > 0)
        ;
    tell_wait("maybe", set, 0) ;
    tell("shutdown", shutdown(ends[0], SHUT_WR));
    tell_wait("the end", set, -1);
    tell_wait("no edge", set, 20);
    tell("read", read(ends[1], bytes, sizeof bytes));
    return 0;
}
