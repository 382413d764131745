/* A child that is killed amid a send: its lock is taken over although it is still a zombie. */
#include "fixture.h"
#include <sys/mman.h>

enum { PART = 4096 };

/* A mapping that ends where its file ends. */
static void die(int fd)
{
    char name[] = "/tmp/poisoned-XXXXXX";
    int file = mkstemp(name);
    CHECK(file >= 0 && unlink(name) == 0 && ftruncate(file, 2 * PART) == 0);
    char *bytes = mmap(NULL, 2 * PART, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(bytes != MAP_FAILED);
    memset(bytes, 'b', 2 * PART);
    CHECK(ftruncate(file, PART) == 0);
    signal(SIGBUS, SIG_DFL);
    send(fd, bytes, 2 * PART, 0);
}

int main(void)
{
    int ends[2];
    char bytes[PART];
    siginfo_t info;
    join(ends);
    pid_t child = start(die, ends[1]);
    CHECK(waitid(P_PID, child, &info, WEXITED | WNOWAIT) == 0);
    tell("killed by SIGBUS", info.si_status == SIGBUS);
    tell("send beside it", send(ends[1], "more", 4, MSG_NOSIGNAL));
    tell("recv beside it", recv(ends[1], bytes, sizeof bytes, 0));
    close(ends[1]);
    ssize_t got;
    while ((got = recv(ends[0], bytes, sizeof bytes, 0)) > 0)
        ;
    tell("peer", got);
    CHECK(waitpid(child, NULL, 0) == child);
    return 0;
}
