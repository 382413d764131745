/* Signal handlers close members of a set, change others, and fork, at any point of their thread's work on the set. */
#include "wait.h"
#include <sched.h>
#include <sys/mman.h>

enum { COUNT = 300, ROUNDS = 1024 };
static int set, kept[2], members[COUNT];
static volatile sig_atomic_t closed, forked, failed;
/* Waits of the main thread, in memory that the child shares. */
static volatile unsigned *waits;

static void handle(int signal)
{
    (void)signal;
    int before = errno;
    if (closed == COUNT)
        return;
    close(members[closed++]);
    struct epoll_event event = {.events = closed % 2 ? EPOLLIN : EPOLLIN | EPOLLOUT, .data.u64 = 1};
    /* A call that cannot run above the set's own work fails with EAGAIN. */
    failed |= epoll_ctl(set, EPOLL_CTL_MOD, kept[1], &event) != 0 && errno != EAGAIN;
    if (closed % 30 == 0) {
        pid_t child = fork();
        if (child == 0) {
            close(kept[1]);
            _exit(0);
        }
        failed |= child < 0 || waitpid(child, NULL, 0) != child;
        forked++;
    }
    errno = before;
}

int main(void)
{
    int ends[2];
    struct epoll_event events[8];
    char byte;
    alarm(60);
    waits = mmap(NULL, sizeof *waits, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(waits != MAP_FAILED);
    set = epoll_create1(0);
    join(kept);
    control(set, EPOLL_CTL_ADD, kept[1], EPOLLIN, 1);
    for (int number = 0; number < COUNT; number++) {
        join(ends);
        members[number] = ends[0];
        control(set, EPOLL_CTL_ADD, ends[0], EPOLLIN | (number % 2 ? EPOLLET : 0), 2);
    }
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &action, NULL);
    sigset_t wanted, before;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGUSR1);
    /* Another process sends the signals, at any moment. */
    pid_t parent = getpid(), child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        for (unsigned place = 1;; place = place * 1664525 + 1013904223) {
            unsigned before = *waits;
            if (kill(parent, SIGUSR1) != 0)
                _exit(0);
            while (*waits - before < 2)
                sched_yield();
            /* Another point of the work each time. */
            for (volatile unsigned round = place >> 22; round < ROUNDS; round++)
                ;
        }
    }
    while (closed < COUNT) {
        epoll_wait(set, events, 8, 0);
        ++*waits;
    }
    sigprocmask(SIG_BLOCK, &wanted, &before);
    kill(child, SIGKILL);
    CHECK(waitpid(child, NULL, 0) == child);
    printf("closed %d forked %d failed %d\n", (int)closed, (int)forked, (int)failed);
    /* The set has the remaining member, and works. */
    control(set, EPOLL_CTL_MOD, kept[1], EPOLLIN, 1);
    tell_wait("nothing", set, 0);
    send_all(kept[0], "x", 1);
    tell_wait("a byte", set, -1);
    tell("recv", recv(kept[1], &byte, 1, 0));
    close(kept[0]);
    tell_wait("the end", set, -1);
    return 0;
}
