/* The same calls by system call number, and by the fortified names. */
#define _FORTIFY_SOURCE 2
#include "fixture.h"
#include <sys/syscall.h>

int main(int count, char **arguments)
{
    int ends[2];
    char bytes[64];
    (void)arguments;
    join(ends);
    tell("write", syscall(SYS_write, ends[0], "abcdef", 6));
    tell("recvfrom", syscall(SYS_recvfrom, ends[1], bytes, sizeof bytes, MSG_PEEK, NULL, NULL));
    tell("read", syscall(SYS_read, ends[1], bytes, 4));
    printf("%.4s\n", bytes);
    size_t size = count + 1;
    tell("fortified read", read(ends[1], bytes, size));
    printf("%.2s\n", bytes);
    struct iovec piece = {"xyz", 3};
    tell("writev", syscall(SYS_writev, ends[0], &piece, 1));
    tell("fortified recv", recv(ends[1], bytes, size + 10, 0));
    int copy = syscall(SYS_dup, ends[0]);
    tell("close", syscall(SYS_close, ends[0]));
    tell("by the copy", syscall(SYS_sendto, copy, "x", 1, 0, NULL, 0));
    tell("fortified recvfrom", recvfrom(ends[1], bytes, size, 0, NULL, NULL));
    struct pollfd poller = {copy, POLLIN | POLLOUT, 0};
    tell("poll", syscall(SYS_poll, &poller, 1, 1000));
    printf("%x\n", poller.revents);
    tell("shutdown", syscall(SYS_shutdown, copy, SHUT_WR));
    tell("getpid", syscall(SYS_getpid) == getpid());
    tell("end", syscall(SYS_read, ends[1], bytes, 4));
    return 0;
}
