/* Places in memory that no program has: an error, and the connection goes on. Of places that a program may have, but
 * where nothing is, docs/user-level-sockets.md says that they end the program. */
#include "calls.h"

static void wrong_places(void) {
    title("wrong places");
    struct ends ends = connected();
    char got[16];
    int epoll = epoll_create1(EPOLL_CLOEXEC);
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
    /* Where the kernel is. */
    void *high = (void *)-4096;
    SAY(send(ends.a, high, 5, MSG_NOSIGNAL));
    SAY(recv(ends.b, high, 5, MSG_DONTWAIT));
    SAY(write(ends.a, (void *)(uintptr_t)0x8000000000001000, 5));
    SAY(send(ends.a, got, (size_t)1 << 62, MSG_NOSIGNAL | MSG_DONTWAIT) == -1 ? errno : 0);
    struct iovec parts[2] = {{got, 4}, {(void *)8, 4}};
    send_all(ends.a, "123456", 6);
    await_bytes(ends.b, 6);
    SAY(readv(ends.b, parts, 2));
    SAY(recv(ends.b, got, 16, 0));
    SAY(epoll_wait(epoll, (void *)8, 1, 0));
    SAY(epoll_ctl(epoll, EPOLL_CTL_ADD, ends.a, (void *)8));
    SAY(poll((void *)8, 1, 0));
    SAY(select(ends.a + 1, (void *)8, NULL, NULL, NULL));
    /* Nothing can be sent: that is said first. */
    shutdown(ends.a, SHUT_WR);
    SAY(send(ends.a, (void *)8, 5, MSG_NOSIGNAL));
    SAY(recv(ends.b, (void *)8, 5, 0));
    SAY(getpeername(ends.a, NULL, NULL));
    SAY(getsockname(ends.a, NULL, NULL));
    close(epoll);
    close_both(ends);
}

int main(void) {
    wrong_places();
    return 0;
}
