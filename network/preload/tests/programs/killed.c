/* Children that hold connections and are killed, before and after they claim them. */
#include "fixture.h"
#include <spawn.h>

enum { MILLISECONDS = 300 };

static void stay(int fd)
{
    char byte = 'c';
    CHECK(write(fd, &byte, 1) == 1);
    for (;;)
        pause();
}

/* Waits without a result, in one sleep: no other process may read the wake-ups. The length of the wait is under test. */
static void wait_in_vain(const char *what, int fd)
{
    char byte;
    struct timeval time = {.tv_usec = MILLISECONDS * 1000};
    CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time) == 0);
    tell(what, recv(fd, &byte, 1, 0));
}

static void killed(void)
{
    int ends[2], status;
    char byte;
    join(ends);
    pid_t child = start(stay, ends[1]);
    tell("child is there", recv(ends[0], &byte, 1, 0));
    CHECK(kill(child, SIGKILL) == 0);
    CHECK(waitpid(child, &status, 0) == child);
    wait_in_vain("beside a killed child", ends[0]);
    /* Unread bytes at the last close reset the connection. */
    send_all(ends[0], "unread", 6);
    await(ends[1], 6);
    close(ends[1]);
    tell("peer of a killed child", recv(ends[0], &byte, 1, 0));
    close(ends[0]);
}

static void unaware(void)
{
    int ends[2], status;
    pid_t child;
    char *arguments[] = {"true", NULL}, *environment[] = {NULL};
    join(ends);
    CHECK(posix_spawn(&child, "/bin/true", NULL, NULL, arguments, environment) == 0);
    CHECK(waitpid(child, &status, 0) == child);
    wait_in_vain("beside a program without the library", ends[0]);
    CHECK(posix_spawn(&child, "/not/there", NULL, NULL, arguments, environment) != 0);
    wait_in_vain("beside a program that is not there", ends[0]);
    close(ends[0]);
    close(ends[1]);
}

int main(void)
{
    killed();
    unaware();
    return 0;
}
