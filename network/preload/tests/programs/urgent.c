/* Urgent bytes, sent and received. */
#include "fixture.h"

static void mark(int fd)
{
    int at = -1;
    tell("mark", ioctl(fd, SIOCATMARK, &at));
    printf("  %d\n", at);
}

int main(void)
{
    int ends[2], one = 1;
    char bytes[64];
    join(ends);
    tell("none", recv(ends[1], bytes, 1, MSG_OOB));
    mark(ends[1]);
    tell("send", send(ends[0], "abcX", 4, MSG_OOB));
    send_all(ends[0], "def", 3);
    struct pollfd poller = {ends[1], POLLPRI | POLLIN, 0};
    tell("poll", poll(&poller, 1, 5000));
    printf("  %x\n", poller.revents);
    tell("peek", recv(ends[1], bytes, sizeof bytes, MSG_OOB | MSG_PEEK));
    printf("  %c\n", bytes[0]);
    tell("recv", recv(ends[1], bytes, sizeof bytes, 0));
    mark(ends[1]);
    tell("urgent", recv(ends[1], bytes, sizeof bytes, MSG_OOB));
    printf("  %c\n", bytes[0]);
    tell("urgent again", recv(ends[1], bytes, sizeof bytes, MSG_OOB));
    tell("recv", recv(ends[1], bytes, sizeof bytes, 0));
    mark(ends[1]);
    tell("inline", setsockopt(ends[1], SOL_SOCKET, SO_OOBINLINE, &one, sizeof one));
    tell("send", send(ends[0], "abcX", 4, MSG_OOB));
    send_all(ends[0], "def", 3);
    tell("recv", recv(ends[1], bytes, sizeof bytes, 0));
    mark(ends[1]);
    tell("recv", recv(ends[1], bytes, sizeof bytes, 0));
    printf("  %.4s\n", bytes);
    tell("urgent", recv(ends[1], bytes, sizeof bytes, MSG_OOB));
    return 0;
}
