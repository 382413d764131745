/* Options and addresses of a socket before, during and after its connection. */
#include "fixture.h"

static void number(int fd, const char *name, int level, int option)
{
    int value = -1;
    socklen_t size = sizeof value;
    tell(name, getsockopt(fd, level, option, &value, &size));
    printf("  %d in %u\n", value, size);
}

int main(void)
{
    struct sockaddr_in address, own, peer;
    socklen_t size = sizeof own;
    int one = 1, listener = listen_at(&address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    CHECK(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one) == 0);
    tell("connect", connect(fd, (struct sockaddr *)&address, sizeof address));
    struct pollfd poller = {fd, POLLOUT, 0};
    tell("poll", poll(&poller, 1, 5000));
    printf("  %x\n", poller.revents);
    number(fd, "SO_ERROR", SOL_SOCKET, SO_ERROR);
    tell("connect again", connect(fd, (struct sockaddr *)&address, sizeof address));
    tell("and again", connect(fd, (struct sockaddr *)&address, sizeof address));
    printf("flags %x %x\n", fcntl(fd, F_GETFL), fcntl(fd, F_GETFD));
    int accepted = accept4(listener, (struct sockaddr *)&peer, &size, SOCK_CLOEXEC);
    CHECK(accepted >= 0);
    printf("size %u family %d\n", size, peer.sin_family);
    size = sizeof own;
    tell("getsockname", getsockname(fd, (struct sockaddr *)&own, &size));
    printf("same port %d, loopback %d\n", own.sin_port == peer.sin_port, own.sin_addr.s_addr == htonl(INADDR_LOOPBACK));
    tell("getpeername", getpeername(fd, (struct sockaddr *)&peer, &size));
    printf("same port %d\n", peer.sin_port == address.sin_port);
    size = 4;
    tell("short", getpeername(fd, (struct sockaddr *)&peer, &size));
    printf("size %u\n", size);
    number(fd, "SO_TYPE", SOL_SOCKET, SO_TYPE);
    number(fd, "SO_DOMAIN", SOL_SOCKET, SO_DOMAIN);
    number(fd, "SO_PROTOCOL", SOL_SOCKET, SO_PROTOCOL);
    number(fd, "SO_ACCEPTCONN", SOL_SOCKET, SO_ACCEPTCONN);
    number(listener, "SO_ACCEPTCONN of the listener", SOL_SOCKET, SO_ACCEPTCONN);
    number(fd, "SO_KEEPALIVE", SOL_SOCKET, SO_KEEPALIVE);
    number(accepted, "SO_KEEPALIVE", SOL_SOCKET, SO_KEEPALIVE);
    number(fd, "TCP_NODELAY", IPPROTO_TCP, TCP_NODELAY);
    number(accepted, "TCP_NODELAY", IPPROTO_TCP, TCP_NODELAY);
    tell("set it", setsockopt(accepted, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one));
    number(accepted, "TCP_NODELAY", IPPROTO_TCP, TCP_NODELAY);
    tell("too short", setsockopt(accepted, IPPROTO_TCP, TCP_NODELAY, &one, 2));
    number(fd, "TCP_KEEPIDLE", IPPROTO_TCP, TCP_KEEPIDLE);
    number(fd, "TCP_KEEPINTVL", IPPROTO_TCP, TCP_KEEPINTVL);
    number(fd, "TCP_KEEPCNT", IPPROTO_TCP, TCP_KEEPCNT);
    number(fd, "IP_TOS", IPPROTO_IP, IP_TOS);
    number(fd, "no such option", SOL_SOCKET, 9999);
    tell("set SO_ERROR", setsockopt(fd, SOL_SOCKET, SO_ERROR, &one, sizeof one));
    struct tcp_info info;
    size = sizeof info;
    tell("TCP_INFO", getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size));
    printf("state %d\n", info.tcpi_state);
    tell("accept of nothing to accept", accept(fd, NULL, NULL));
    tell("listen", listen(fd, 1));
    tell("sendto with an address", sendto(fd, "x", 1, 0, (struct sockaddr *)&address, sizeof address));
    char bytes[8];
    size = sizeof peer;
    tell("recvfrom", recvfrom(accepted, bytes, sizeof bytes, 0, (struct sockaddr *)&peer, &size));
    printf("size %u\n", size);
    tell("FIONBIO", ioctl(accepted, FIONBIO, &one));
    tell("nonblocking", recv(accepted, bytes, sizeof bytes, 0));
    return 0;
}
