/* Connections that end with unread bytes, with linger, and writes after the peer closed. */
#include "fixture.h"

static void error_of(int fd)
{
    int error = -1;
    socklen_t size = sizeof error;
    tell("getsockopt", getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size));
    printf("error %s\n", error ? strerrorname_np(error) : "none");
}

int main(void)
{
    int ends[2];
    char bytes[64];
    struct linger hard = {1, 0};
    signal(SIGPIPE, SIG_IGN);

    join(ends);
    send_all(ends[0], "unread", 6);
    await(ends[1], 6);
    close(ends[1]);
    tell("unread: recv", recv(ends[0], bytes, sizeof bytes, 0));
    tell("unread: recv again", recv(ends[0], bytes, sizeof bytes, 0));
    tell("unread: send", send(ends[0], "x", 1, 0));
    close(ends[0]);

    join(ends);
    tell("linger", setsockopt(ends[1], SOL_SOCKET, SO_LINGER, &hard, sizeof hard));
    send_all(ends[1], "late", 4);
    tell("late", recv(ends[0], bytes, sizeof bytes, 0));
    close(ends[1]);
    struct pollfd poller = {ends[0], POLLIN, 0};
    tell("poll", poll(&poller, 1, 5000));
    error_of(ends[0]);
    error_of(ends[0]);
    tell("linger: recv", recv(ends[0], bytes, sizeof bytes, 0));
    close(ends[0]);

    join(ends);
    close(ends[1]);
    tell("closed: recv", recv(ends[0], bytes, sizeof bytes, 0));
    tell("closed: first send", send(ends[0], "x", 1, 0));
    /* TCP delivers the reset a moment later. */
    poller = (struct pollfd){ends[0], 0, 0};
    tell("closed: poll", poll(&poller, 1, 5000));
    tell("closed: second send", send(ends[0], "x", 1, 0));
    tell("closed: recv again", recv(ends[0], bytes, sizeof bytes, 0));
    close(ends[0]);
    return 0;
}
