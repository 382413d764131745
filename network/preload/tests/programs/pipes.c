/* SIGPIPE: raised, and suppressed. */
#include "fixture.h"

static volatile int count;
static void note(int signal) { (void)signal; count++; }

int main(void)
{
    int ends[2];
    struct iovec piece = {"x", 1};
    signal(SIGPIPE, note);
    join(ends);
    char byte;
    send_all(ends[0], "x", 1);
    tell("read", read(ends[1], &byte, 1));
    shutdown(ends[0], SHUT_WR);
    tell("write", write(ends[0], "x", 1));
    printf("signals %d\n", count);
    tell("send", send(ends[0], "x", 1, 0));
    printf("signals %d\n", count);
    tell("writev", writev(ends[0], &piece, 1));
    printf("signals %d\n", count);
    tell("send without", send(ends[0], "x", 1, MSG_NOSIGNAL));
    printf("signals %d\n", count);
    return 0;
}
