/* Calls by syscall() and by the names that fortified programs use, among calls by the plain names. */
#include "calls.h"
#include <dlfcn.h>

static void by_number(void) {
    title("syscall");
    struct sockaddr_in address = loopback(0);
    socklen_t length = sizeof address;
    int listener = SAY_OK(syscall(SYS_socket, AF_INET, SOCK_STREAM, 0));
    SAY(syscall(SYS_bind, listener, &address, sizeof address));
    SAY(syscall(SYS_listen, listener, 5));
    SAY(syscall(SYS_getsockname, listener, &address, &length));
    int a = SAY_OK(syscall(SYS_socket, AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    SAY(syscall(SYS_connect, a, &address, sizeof address));
    int b = SAY_OK(syscall(SYS_accept4, listener, NULL, NULL, SOCK_NONBLOCK));
    printf("flags %lx\n", syscall(SYS_fcntl, b, F_GETFL) & O_NONBLOCK);
    char got[32];
    SAY(syscall(SYS_recvfrom, b, got, 32, MSG_DONTWAIT, NULL, NULL));
    SAY(syscall(SYS_sendto, a, "one", 3, MSG_NOSIGNAL, NULL, 0));
    SAY(syscall(SYS_write, a, "two", 3));
    struct iovec part = {"three", 5}, place = {got, 32};
    SAY(syscall(SYS_writev, a, &part, 1));
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    SAY(syscall(SYS_sendmsg, a, &message, 0));
    struct mmsghdr messages = {.msg_hdr = message};
    SAY(syscall(SYS_sendmmsg, a, &messages, 1, 0));
    await_bytes(b, 21);
    int pending = 0;
    SAY(syscall(SYS_ioctl, b, FIONREAD, &pending));
    printf("%d\n", pending);
    struct pollfd wanted = {.fd = b, .events = POLLIN | POLLOUT};
#ifdef SYS_poll
    SAY(syscall(SYS_poll, &wanted, 1, 0));
#else
    SAY(poll(&wanted, 1, 0));
#endif
    printf("%s\n", bits((unsigned short)wanted.revents));
    SAY(syscall(SYS_ppoll, &wanted, 1, NULL, NULL, 0));
    int epoll = SAY_OK(syscall(SYS_epoll_create1, 0));
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 7}, told;
    SAY(syscall(SYS_epoll_ctl, epoll, EPOLL_CTL_ADD, b, &event));
    SAY(syscall(SYS_epoll_pwait, epoll, &told, 1, 0, NULL, 0));
    printf("%s\n", bits(told.events));
    fd_set in;
    FD_ZERO(&in);
    FD_SET(b, &in);
    SAY(syscall(SYS_pselect6, b + 1, &in, NULL, NULL, NULL, NULL));
    SAY(syscall(SYS_recvfrom, b, got, 3, MSG_PEEK, NULL, NULL));
    SAY(syscall(SYS_read, b, got, 3));
    SAY(syscall(SYS_readv, b, &place, 1));
    int copy = SAY_OK(syscall(SYS_dup, a));
    SAY(syscall(SYS_dup3, a, 200, 0));
    SAY(syscall(SYS_close, a));
    SAY(syscall(SYS_write, copy, "copy", 4));
    SAY(syscall(SYS_write, 200, "200", 3));
    await_bytes(b, 7);
    message.msg_iov = &place;
    SAY(syscall(SYS_recvmsg, b, &message, 0));
    int value = 1;
    SAY(syscall(SYS_setsockopt, b, IPPROTO_TCP, TCP_NODELAY, &value, sizeof value));
    length = sizeof value;
    SAY(syscall(SYS_getsockopt, b, SOL_SOCKET, SO_TYPE, &value, &length));
    printf("%d\n", value);
    SAY(syscall(SYS_getpeername, b, &address, (length = sizeof address, &length)));
    printf("family %d\n", address.sin_family);
    SAY(syscall(SYS_shutdown, copy, SHUT_WR));
    await(b, POLLRDHUP);
    SAY(syscall(SYS_read, b, got, 3));
    SAY(syscall(SYS_close_range, 200, 200, 0));
    SAY(syscall(SYS_close, copy));
    SAY(syscall(SYS_close, b));
    SAY(syscall(SYS_close, listener));
    SAY(syscall(SYS_close, epoll));
    SAY(syscall(SYS_read, b, got, 3));
    SAY(syscall(SYS_getpid) == getpid());
    SAY(syscall(99999));
}

/* The names that the C library has for one function are the same function. */
static void by_other_names(void) {
    title("other names");
    struct ends ends = connected();
    char got[32];
    ssize_t (*our_write)(int, const void *, size_t) = (ssize_t(*)(int, const void *, size_t))dlsym(RTLD_DEFAULT, "__write");
    ssize_t (*our_read)(int, void *, size_t) = (ssize_t(*)(int, void *, size_t))dlsym(RTLD_DEFAULT, "__read");
    ssize_t (*our_send)(int, const void *, size_t, int) =
        (ssize_t(*)(int, const void *, size_t, int))dlsym(RTLD_DEFAULT, "__send");
    int (*our_poll)(struct pollfd *, nfds_t, int) = (int (*)(struct pollfd *, nfds_t, int))dlsym(RTLD_DEFAULT, "__poll");
    int (*our_fcntl)(int, int, ...) = (int (*)(int, int, ...))dlsym(RTLD_DEFAULT, "__fcntl");
    int (*our_fcntl64)(int, int, ...) = (int (*)(int, int, ...))dlsym(RTLD_DEFAULT, "fcntl64");
    ssize_t (*our_recv)(int, void *, size_t, size_t, int) =
        (ssize_t(*)(int, void *, size_t, size_t, int))dlsym(RTLD_DEFAULT, "__recv_chk");
    ssize_t (*checked_read)(int, void *, size_t, size_t) =
        (ssize_t(*)(int, void *, size_t, size_t))dlsym(RTLD_DEFAULT, "__read_chk");
    if (our_write)
        SAY(our_write(ends.a, "one", 3));
    if (our_send)
        SAY(our_send(ends.a, "two", 3, 0));
    await_bytes(ends.b, 6);
    struct pollfd wanted = {.fd = ends.b, .events = POLLIN};
    if (our_poll)
        SAY(our_poll(&wanted, 1, 0));
    if (our_read)
        SAY(our_read(ends.b, got, 2));
    SAY(our_recv(ends.b, got, 2, sizeof got, 0));
    SAY(checked_read(ends.b, got, 2, sizeof got));
    if (our_fcntl)
        SAY(our_fcntl(ends.b, F_SETFL, O_NONBLOCK));
    SAY(our_fcntl64(ends.b, F_GETFL) & O_NONBLOCK);
    SAY(recv(ends.b, got, 2, 0));
    close_both(ends);
}

/* The compiler knows the size of these, and calls the checked names for lengths that it does not know. */
static void by_checked_names(volatile size_t length) {
    title("checked names");
    struct ends ends = connected();
    char got[32];
    SAY(send(ends.a, "1234567890", 10, 0));
    await_bytes(ends.b, 10);
    SAY(read(ends.b, got, length));
    SAY(recv(ends.b, got, length, 0));
    SAY(recvfrom(ends.b, got, length, 0, NULL, NULL));
    struct pollfd wanted[2] = {{.fd = ends.a, .events = POLLOUT}, {.fd = ends.b, .events = POLLIN}};
    volatile nfds_t count = 2;
    SAY(poll(wanted, count, 0));
    SAY(ppoll(wanted, count, NULL, NULL));
    fd_set in;
    FD_ZERO(&in);
    FD_SET(ends.b, &in);
    SAY(select(ends.b + 1, &in, NULL, NULL, &(struct timeval){0, 0}));
    close_both(ends);
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    by_number();
    by_other_names();
    by_checked_names(2);
    return 0;
}
