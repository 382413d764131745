/* Signals end a wait; masks apply for the time of a wait. */
#include "wait.h"

static volatile sig_atomic_t signals;

static void count(int signal)
{
    (void)signal;
    signals++;
}

int main(void)
{
    int ends[2];
    struct epoll_event events[4];
    join(ends);
    int set = epoll_create1(0);
    control(set, EPOLL_CTL_ADD, ends[1], EPOLLIN, 1);
    struct sigaction action = {.sa_handler = count, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval time = {{0, 0}, {0, 50000}};
    setitimer(ITIMER_REAL, &time, NULL);
    tell("epoll_wait", epoll_wait(set, events, 4, -1));
    struct pollfd member = {ends[1], POLLIN, 0};
    setitimer(ITIMER_REAL, &time, NULL);
    tell("poll", poll(&member, 1, -1));
    fd_set read_set;
    FD_ZERO(&read_set);
    FD_SET(ends[1], &read_set);
    setitimer(ITIMER_REAL, &time, NULL);
    tell("select", select(64, &read_set, NULL, NULL, NULL));
    printf("signals %d, still in the set %d\n", (int)signals, !!FD_ISSET(ends[1], &read_set));
    sigset_t blocked, none;
    sigemptyset(&none);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGALRM);
    sigprocmask(SIG_BLOCK, &blocked, NULL);
    raise(SIGALRM);
    printf("signals %d\n", (int)signals);
    tell("epoll_wait", epoll_wait(set, events, 4, 20));
    tell("epoll_pwait", epoll_pwait(set, events, 4, -1, &none));
    printf("signals %d\n", (int)signals);
    raise(SIGALRM);
    tell("ppoll", ppoll(&member, 1, NULL, &none));
    raise(SIGALRM);
    tell("pselect", pselect(64, &read_set, NULL, NULL, NULL, &none));
    printf("signals %d\n", (int)signals);
    struct timespec brief = {0, 1000000};
    tell("epoll_pwait2", epoll_pwait2(set, events, 4, &brief, NULL));
    send_all(ends[0], "x", 1);
    tell("epoll_pwait2", epoll_pwait2(set, events, 4, NULL, NULL));
    char byte;
    tell("read", read(ends[1], &byte, 1));
    return 0;
}
