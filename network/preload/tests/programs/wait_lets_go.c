/* A connection that both sides of a fork have closed ends, though a set had it, and though both processes run on. */
#include "wait.h"

static int ends[2], listener, told[2], over[2];

/* Closes its copies, writes a byte, and runs until the parent has seen the end. */
static void close_all(int set)
{
    char byte = 'c';
    (void)set;
    close(over[1]);
    close(ends[1]);
    close(listener);
    CHECK(write(told[1], &byte, 1) == 1);
    CHECK(read(over[0], &byte, 1) == 0);
}

int main(void)
{
    int set = epoll_create1(0);
    char byte;
    struct sockaddr_in address;
    join(ends);
    listener = listen_at(&address);
    CHECK(pipe(told) == 0 && pipe(over) == 0);
    control(set, EPOLL_CTL_ADD, ends[1], EPOLLIN, 1);
    control(set, EPOLL_CTL_ADD, listener, EPOLLIN, 2);
    tell_wait("set", set, 0);
    pid_t child = start(close_all, set);
    CHECK(read(told[0], &byte, 1) == 1);
    close(ends[1]);
    close(listener);
    struct pollfd member = {ends[0], POLLIN | POLLRDHUP, 0};
    tell("poll", poll(&member, 1, 3000));
    tell("recv", recv(ends[0], &byte, 1, MSG_DONTWAIT));
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    tell("connect", connect(fd, (struct sockaddr *)&address, sizeof address));
    close(over[1]);
    finish(child);
    return 0;
}
