/* Servers whose workers only accept, each with another kind of wait, until the standard input ends. */
#include "fixture.h"
#include <sys/epoll.h>

static void accept_one(int listener)
{
    int fd = accept(listener, NULL, NULL);
    if (fd >= 0)
        close(fd);
}

static void accept_alone(int listener)
{
    for (;;)
        accept_one(listener);
}

static void by_epoll(int listener)
{
    struct epoll_event event = {.events = EPOLLIN};
    int set = epoll_create1(0);
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, listener, &event) == 0);
    CHECK(fcntl(listener, F_SETFL, O_NONBLOCK) == 0);
    for (;;) {
        CHECK(epoll_wait(set, &event, 1, -1) == 1);
        accept_one(listener);
    }
}

static void by_poll(int listener)
{
    struct pollfd member = {.fd = listener, .events = POLLIN};
    CHECK(fcntl(listener, F_SETFL, O_NONBLOCK) == 0);
    for (;;) {
        CHECK(poll(&member, 1, -1) == 1);
        accept_one(listener);
    }
}

int main(void)
{
    void (*const ways[])(int) = {accept_alone, by_epoll, by_poll};
    pid_t workers[3];
    char byte;
    for (int way = 0; way < 3; way++) {
        struct sockaddr_in address;
        int listener = listen_at(&address);
        workers[way] = start(ways[way], listener);
        close(listener);
    }
    CHECK(read(0, &byte, 1) == 0);
    for (int way = 0; way < 3; way++) {
        CHECK(kill(workers[way], SIGKILL) == 0);
        CHECK(waitpid(workers[way], NULL, 0) == workers[way]);
    }
    return 0;
}
