/* Places in memory that are not there: an error, and the connection goes on. */
#include "calls.h"

static void wrong_places(void) {
    title("wrong places");
    struct ends ends = connected();
    char got[16];
    SAY(send(ends.a, (void *)8, 5, MSG_NOSIGNAL));
    SAY(write(ends.a, (void *)8, 5));
    SAY(send(ends.a, "12345", 5, 0));
    await_bytes(ends.b, 5);
    SAY(recv(ends.b, (void *)8, 5, 0));
    SAY(read(ends.b, (void *)8, 5));
    SAY(recv(ends.b, got, 16, 0));
    SAY(sendmsg(ends.a, (void *)8, 0));
    SAY(recvmsg(ends.b, (void *)8, MSG_DONTWAIT));
    SAY(readv(ends.b, (void *)8, 1));
    SAY(ioctl(ends.a, FIONREAD, (void *)8));
    SAY(setsockopt(ends.a, IPPROTO_TCP, TCP_NODELAY, (void *)8, 4));
    SAY(getsockopt(ends.a, IPPROTO_TCP, TCP_NODELAY, (void *)8, (void *)8));
    SAY(send(ends.a, "still here", 10, 0));
    await_bytes(ends.b, 10);
    SAY(recv(ends.b, got, 16, 0));
    SAY(getpeername(ends.a, NULL, NULL));
    SAY(getsockname(ends.a, NULL, NULL));
    close_both(ends);
}

int main(void) {
    wrong_places();
    return 0;
}
