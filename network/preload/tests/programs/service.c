/* A class and a rate, set before and after the connection is made. */
#include "fixture.h"

enum { SIZE = 300000 };

static void show(const char *name, int fd)
{
    int priority = -1;
    unsigned long rate = 1;
    socklen_t size = sizeof priority;
    tell(name, getsockopt(fd, SOL_SOCKET, SO_PRIORITY, &priority, &size));
    printf("  %d in %u\n", priority, size);
    size = sizeof rate;
    tell(name, getsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, &size));
    printf("  %lx in %u\n", rate, size);
    size = 4;
    rate = 0;
    tell(name, getsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, &size));
    printf("  %x in %u\n", (unsigned)rate, size);
}

static void sender(int fd)
{
    static char bytes[SIZE];
    unsigned long none = -1UL;
    for (int at = 0; at < SIZE; at++)
        bytes[at] = at * 7;
    send_all(fd, bytes, SIZE / 2);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &none, sizeof none) == 0);
    send_all(fd, bytes + SIZE / 2, SIZE - SIZE / 2);
    CHECK(shutdown(fd, SHUT_WR) == 0);
}

int main(void)
{
    struct sockaddr_in address;
    int priority = 6, listener = listen_at(&address);
    unsigned rate = 5000000;
    unsigned long large = 1UL << 40;
    CHECK(setsockopt(listener, SOL_SOCKET, SO_MAX_PACING_RATE, &large, sizeof large) == 0);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_PRIORITY, &priority, sizeof priority) == 0);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof rate) == 0);
    CHECK(connect(fd, (struct sockaddr *)&address, sizeof address) == 0);
    int accepted = accept(listener, NULL, NULL);
    CHECK(accepted >= 0);
    show("connected", fd);
    show("accepted", accepted);
    tell("too short", setsockopt(accepted, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, 2));
    rate = -1U;
    tell("no limit", setsockopt(accepted, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof rate));
    for (priority = 0; priority < 7; priority++)
        tell("priority", setsockopt(accepted, SOL_SOCKET, SO_PRIORITY, &priority, sizeof priority));
    show("accepted", accepted);
    pid_t child = start(sender, fd);
    close(fd);
    static char bytes[4096];
    long whole = 0, count;
    while ((count = read(accepted, bytes, sizeof bytes)) > 0)
        for (long at = 0; at < count; at++, whole++)
            CHECK(bytes[at] == (char)(whole * 7));
    tell("whole", whole);
    close(accepted);
    finish(child);
    return 0;
}
