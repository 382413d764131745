/* A child without the library: it writes to a connection by a raw system call, and exits. */
#include "fixture.h"
#include <sys/syscall.h>

static long call(long number, long first, long second, long third)
{
#if defined(__x86_64__)
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(first), "S"(second), "d"(third)
                     : "rcx", "r11", "memory");
    return result;
#elif defined(__aarch64__)
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = first;
    register long x1 __asm__("x1") = second;
    register long x2 __asm__("x2") = third;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
    return x0;
#else
#error "how are system calls made here?"
#endif
}

static void pass_by(int fd)
{
    call(SYS_write, fd, (long)"foreign", 7);
    call(SYS_exit_group, 0, 0, 0);
}

static void told(const char *what, int flags)
{
    int ends[2];
    char bytes[16];
    join(ends);
    /* Bytes that were sent before are received. */
    send_all(ends[1], "ours", 4);
    pid_t child = start(pass_by, ends[1]);
    close(ends[1]);
    finish(child);
    tell(what, recv(ends[0], bytes, 4, MSG_WAITALL));
    ssize_t got;
    do
        got = recv(ends[0], bytes, sizeof bytes, flags);
    while (got < 0 && errno == EAGAIN);
    tell(what, got);
    close(ends[0]);
}

int main(void)
{
    told("recv", 0);
    told("recv, not waiting", MSG_DONTWAIT);
    return 0;
}
