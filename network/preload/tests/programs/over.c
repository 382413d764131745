/* Results on connections that end in steps, on a closed listener, and of options with limits. */
#include "fixture.h"

static void set(int fd, int name, int value)
{
    tell("set", setsockopt(fd, IPPROTO_TCP, name, &value, sizeof value));
}

int main(void)
{
    int ends[2];
    char bytes[16];
    struct sockaddr_in address;
    socklen_t size = sizeof address;
    join(ends);
    tell("both ways", shutdown(ends[0], SHUT_RDWR));
    tell("again", shutdown(ends[0], SHUT_WR));
    tell("name", getpeername(ends[0], (struct sockaddr *)&address, &size));
    tell("the other", shutdown(ends[1], SHUT_WR));
    struct pollfd poller = {ends[0], POLLRDHUP, 0};
    tell("poll", poll(&poller, 1, 5000));
    /* The end may still be on its way. */
    while (shutdown(ends[0], SHUT_WR) == 0)
        ;
    tell("over", shutdown(ends[0], SHUT_WR));
    tell("no name", getpeername(ends[0], (struct sockaddr *)&address, &size));
    close(ends[0]);
    close(ends[1]);

    int listener = listen_at(&address);
    int fd = connect_to(&address);
    close(listener);
    poller = (struct pollfd){fd, POLLIN, 0};
    tell("poll", poll(&poller, 1, 5000));
    printf("events %x\n", poller.revents);
    tell("recv", recv(fd, bytes, sizeof bytes, 0));
    close(fd);

    join(ends);
    set(ends[0], TCP_KEEPIDLE, 0);
    set(ends[0], TCP_KEEPINTVL, 40000);
    set(ends[0], TCP_KEEPCNT, 128);
    set(ends[0], TCP_KEEPCNT, 5);
    tell("level", getsockopt(ends[0], 12345, 1, bytes, &size));
    int least = 4;
    tell("low water", setsockopt(ends[1], SOL_SOCKET, SO_RCVLOWAT, &least, sizeof least));
    send_all(ends[0], "abc", 3);
    poller = (struct pollfd){ends[1], POLLIN, 0};
    tell("below", poll(&poller, 1, 0));
    send_all(ends[0], "d", 1);
    tell("above", poll(&poller, 1, 5000));
    struct iovec place = {bytes, 4};
    tell("at once", preadv2(ends[1], &place, 1, -1, RWF_NOWAIT));
    tell("nothing", preadv2(ends[1], &place, 1, -1, RWF_NOWAIT));
    return 0;
}
