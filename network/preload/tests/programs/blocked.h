/* Waiting until another thread or process blocks, without a sleep. */
#ifndef BLOCKED_H
#define BLOCKED_H
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

/* Whether a thread sleeps in the kernel, or has exited. The kernel's answer holds with the library and without it: a
 * thread that still spins is runnable. */
static inline int is_blocked(pid_t process, pid_t thread)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%d/task/%d/stat", (int)process, (int)thread);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 1;
    ssize_t size = read(fd, text, sizeof text - 1);
    close(fd);
    if (size <= 0)
        return 1;
    text[size] = 0;
    /* The state follows the name, which may have any characters. */
    const char *end = strrchr(text, ')');
    return end != NULL && strchr("SZX", end[2]) != NULL;
}

/* Waits until a thread of any process blocks. */
static inline void await_blocked(pid_t process, pid_t thread)
{
    while (!is_blocked(process, thread))
        sched_yield();
}

/* Waits until the main thread of this process blocks. */
static inline void await_main_blocked(void) { await_blocked(getpid(), getpid()); }

/* Waits until a thread of this process has stored its id, and blocks. */
static inline void await_thread_blocked(const volatile pid_t *thread)
{
    while (*thread == 0)
        sched_yield();
    await_blocked(getpid(), *thread);
}
#endif
