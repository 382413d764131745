/* Workers of one listener, each with a set of its own; a set that a fork copies. */
#include "wait.h"

enum { WORKERS = 3, CLIENTS = 30 };

static void work(int listener)
{
    int set = epoll_create1(0);
    set_nonblocking(listener);
    CHECK(control(set, EPOLL_CTL_ADD, listener, EPOLLIN | EPOLLEXCLUSIVE, 0) == 0);
    for (;;) {
        struct epoll_event event;
        CHECK(epoll_wait(set, &event, 1, -1) == 1);
        int fd = event.data.u64;
        if (fd == 0) {
            fd = accept(listener, NULL, NULL);
            if (fd >= 0)
                CHECK(control(set, EPOLL_CTL_ADD, fd, EPOLLIN, fd) == 0);
            continue;
        }
        char byte;
        ssize_t got = read(fd, &byte, 1);
        if (got == 1 && byte == 'q')
            return;
        if (got == 1)
            send_all(fd, &byte, 1);
        else
            close(fd);
    }
}

static int ends[2], set;

static void use_copy(int fd)
{
    char byte;
    struct epoll_event event;
    tell("child waits", epoll_wait(set, &event, 1, -1));
    tell("child's data", event.data.u64);
    tell("child reads", read(fd, &byte, 1));
    send_all(fd, "y", 1);
}

int main(void)
{
    struct sockaddr_in address;
    int listener = listen_at(&address);
    pid_t workers[WORKERS];
    char byte;
    for (int number = 0; number < WORKERS; number++)
        workers[number] = start(work, listener);
    for (int number = 0; number < CLIENTS; number++) {
        int fd = connect_to(&address);
        byte = 'a' + number % 10;
        send_all(fd, &byte, 1);
        CHECK(read(fd, &byte, 1) == 1 && byte == 'a' + number % 10);
        close(fd);
    }
    for (int number = 0; number < WORKERS; number++)
        kill(workers[number], SIGKILL);
    for (int number = 0; number < WORKERS; number++)
        finish(workers[number]);
    join(ends);
    set = epoll_create1(0);
    CHECK(control(set, EPOLL_CTL_ADD, ends[1], EPOLLIN, 7) == 0);
    tell_wait("parent", set, 0);
    pid_t child = start(use_copy, ends[1]);
    close(ends[1]);
    send_all(ends[0], "x", 1);
    tell("parent reads", read(ends[0], &byte, 1));
    finish(child);
    tell("parent reads the end", read(ends[0], &byte, 1));
    return 0;
}
