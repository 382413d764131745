/* Calls by other names: writes from within the C library, and calls by number. */
#include "fixture.h"
#include <sys/select.h>
#include <sys/syscall.h>

extern ssize_t __send(int, const void *, size_t, int);
extern ssize_t __read(int, void *, size_t);
extern int __close(int);

static void show(int fd, size_t size)
{
    char bytes[512];
    ssize_t got = recv(fd, bytes, size, MSG_WAITALL);
    printf("%zd %.*s\n", got, got > 0 ? (int)got : 0, bytes);
}

int main(void)
{
    int ends[2];
    char bytes[8];
    join(ends);
    int printed = dprintf(ends[0], "%d %s %c %.3f %ld %x %g %g %g %g %g %g %g %g %g %d %Lf %s", 1, "two", '3', 4.5, 5l,
        6, 1., 2., 3., 4., 5., 6., 7., 8., 9., 77, (long double)1.25, "end");
    tell("dprintf", printed);
    show(ends[1], printed);
    tell("dprintf elsewhere", dprintf(1, "%d %s %g\n", 1, "two", 3.5));

    send_all(ends[0], "abc", 3);
    fd_set in;
    FD_ZERO(&in);
    FD_SET(ends[1], &in);
    tell("pselect6", syscall(SYS_pselect6, ends[1] + 1, &in, NULL, NULL, NULL, NULL));
    tell("__read", __read(ends[1], bytes, 3));
    tell("__send", __send(ends[0], "defg", 4, 0));
    show(ends[1], 4);

    /* Streams of the C library on a connection. */
    int before = dup(1);
    fflush(stdout);
    dup2(ends[0], 1);
    printf("over stdout");
    printf(" %d\n", fileno(stdout));
    fflush(stdout);
    printf("behind it\n");
    dup2(before, 1);
    show(ends[1], 14);
    before = dup(0);
    dup2(ends[1], 0);
    send_all(ends[0], "for scanf 17\n", 13);
    int number = 0;
    tell("scanf", scanf("for scanf %d", &number));
    printf("%d\n", number);
    dup2(before, 0);
    tell("__close", __close(ends[0]));
    tell("end", recv(ends[1], bytes, 8, 0));
    return 0;
}
