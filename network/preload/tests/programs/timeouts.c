/* Timeouts, and calls that signals interrupt. */
#include "fixture.h"
#include "blocked.h"
#include <sys/mman.h>

/* Signals that came, in memory that a child shares. */
static volatile int *signals;

static void count(int signal)
{
    (void)signal;
    ++*signals;
}

int main(void)
{
    int ends[2];
    static char bytes[1 << 16];
    struct timeval time = {0, 40000}, told;
    socklen_t size = sizeof told;
    signals = mmap(NULL, sizeof *signals, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(signals != MAP_FAILED);
    join(ends);
    tell("set", setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time));
    tell("get", getsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &told, &size));
    printf("%ld.%06ld %d\n", (long)told.tv_sec, (long)told.tv_usec, size);
    tell("recv", recv(ends[0], bytes, sizeof bytes, 0));
    send_all(ends[1], "abc", 3);
    tell("wait for all", recv(ends[0], bytes, 10, MSG_WAITALL));
    time.tv_usec = 1000000;
    tell("bad", setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time));
    tell("short", setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &time, 4));
    time.tv_usec = 40000;
    tell("set", setsockopt(ends[0], SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time));
    ssize_t sent;
    while ((sent = send(ends[0], bytes, sizeof bytes, 0)) > 0)
        ;
    tell("send", sent);

    join(ends);
    struct sigaction action = {.sa_handler = count};
    sigaction(SIGALRM, &action, NULL);
    /* Repeatedly: the first signal may come before the call waits. */
    struct itimerval alarm = {{0, 40000}, {0, 40000}};
    setitimer(ITIMER_REAL, &alarm, NULL);
    tell("broken", recv(ends[0], bytes, sizeof bytes, 0));
    send_all(ends[1], "abc", 3);
    setitimer(ITIMER_REAL, &alarm, NULL);
    tell("broken after some", recv(ends[0], bytes, 10, MSG_WAITALL));
    action.sa_flags = SA_RESTART;
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &alarm, NULL);
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        /* A signal comes while the parent waits, and the parent waits again. */
        await_blocked(parent, parent);
        int before = *signals;
        while (*signals == before)
            sched_yield();
        await_blocked(parent, parent);
        send_all(ends[1], "goes on", 7);
        _exit(0);
    }
    tell("restarted", recv(ends[0], bytes, sizeof bytes, 0));
    finish(child);
    return 0;
}
