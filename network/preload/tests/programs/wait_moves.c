/* Descriptors that are in a set before they are connected, listen, or get another number. */
#include "wait.h"

int main(void)
{
    struct sockaddr_in address;
    char bytes[16];
    int set = epoll_create1(0);
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(bind(listener, (struct sockaddr *)&address, sizeof address) == 0);
    tell("add the listener", control(set, EPOLL_CTL_ADD, listener, EPOLLIN, 1));
    CHECK(listen(listener, 10) == 0);
    CHECK(getsockname(listener, (struct sockaddr *)&address, &size) == 0);
    tell_wait("nothing, or not yet", set, 20) ;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    tell("add the client", control(set, EPOLL_CTL_ADD, fd, EPOLLOUT | EPOLLIN | EPOLLET, 2));
    tell_wait("not connected", set, 0);
    tell("connect", connect(fd, (struct sockaddr *)&address, sizeof address));
    int seen = 0;
    while (seen != 3) {
        struct epoll_event events[4];
        int count = epoll_wait(set, events, 4, -1);
        for (int place = 0; place < count; place++)
            seen |= events[place].data.u64;
    }
    int accepted = accept(listener, NULL, NULL);
    CHECK(accepted >= 0);
    tell_wait("accepted", set, 0);
    send_all(accepted, "abc", 3);
    tell_wait("bytes", set, -1);
    tell("change", control(set, EPOLL_CTL_MOD, fd, EPOLLIN, 3));
    int copy = dup(fd);
    tell("add the copy", control(set, EPOLL_CTL_ADD, copy, EPOLLIN, 4));
    tell_wait("two numbers", set, -1);
    tell("read", read(fd, bytes, sizeof bytes));
    close(fd);
    send_all(accepted, "abc", 3);
    tell_wait("the closed number is still there", set, -1);
    tell("read", read(copy, bytes, sizeof bytes));
    tell_wait("nothing", set, 20);
    close(copy);
    tell_wait("nothing", set, 0);
    return 0;
}
