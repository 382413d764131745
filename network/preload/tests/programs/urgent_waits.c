/* Waits for urgent bytes, and the bytes around them. */
#include "fixture.h"

static void mark(int fd)
{
    int at = -1;
    tell("mark", ioctl(fd, SIOCATMARK, &at));
    printf("  %d\n", at);
}

/* Reads until the line has `count` bytes. */
static void take(int fd, int size)
{
    char bytes[64] = "";
    for (int taken = 0; taken < size;) {
        ssize_t count = recv(fd, bytes + taken, size - taken, 0);
        CHECK(count > 0);
        taken += count;
    }
    printf("  %.*s\n", size, bytes);
}

static void wait_urgent(int fd)
{
    struct pollfd poller = {fd, POLLPRI, 0};
    tell("poll", poll(&poller, 1, 5000));
    printf("  %x\n", poller.revents);
}

static void sender(int fd)
{
    char byte;
    for (int round = 0; round < 3; round++) {
        send_all(fd, "ab", 2);
        CHECK(send(fd, "cdX", 3, MSG_OOB) == 3);
        CHECK(read(fd, &byte, 1) == 1);
        send_all(fd, "ef", 2);
        CHECK(read(fd, &byte, 1) == 1);
    }
    CHECK(send(fd, "Y", 1, MSG_OOB) == 1);
}

int main(void)
{
    int ends[2], one = 1;
    char bytes[64];
    join(ends);
    tell("none", recv(ends[1], bytes, 1, MSG_OOB));
    pid_t child = start(sender, ends[0]);
    close(ends[0]);
    for (int round = 0; round < 3; round++) {
        wait_urgent(ends[1]);
        if (round == 1)
            take(ends[1], 4);
        mark(ends[1]);
        tell("urgent", recv(ends[1], bytes, sizeof bytes, MSG_OOB));
        printf("  %c\n", bytes[0]);
        tell("again", recv(ends[1], bytes, sizeof bytes, MSG_OOB));
        if (round != 1)
            take(ends[1], 4);
        mark(ends[1]);
        send_all(ends[1], "1", 1);
        take(ends[1], 2);
        mark(ends[1]);
        send_all(ends[1], "2", 1);
    }
    wait_urgent(ends[1]);
    tell("inline", setsockopt(ends[1], SOL_SOCKET, SO_OOBINLINE, &one, sizeof one));
    tell("urgent", recv(ends[1], bytes, sizeof bytes, MSG_OOB));
    take(ends[1], 1);
    tell("end", recv(ends[1], bytes, sizeof bytes, 0));
    finish(child);
    return 0;
}
