/* getsockopt and setsockopt. Sizes of buffers and what only the kernel's TCP measures are looked at for sense alone. */
#include "calls.h"

static void say_option(int fd, int level, int name, const char *text) {
    int value = -12345;
    socklen_t length = sizeof value;
    if (getsockopt(fd, level, name, &value, &length) == -1)
        printf("%s: -1 %s\n", text, strerrorname_np(errno));
    else
        printf("%s: %d length %u\n", text, value, length);
    fflush(stdout);
}

static void set_option(int fd, int level, int name, const char *text, int value) {
    printf("%s = %d: ", text, value);
    if (setsockopt(fd, level, name, &value, sizeof value) == -1)
        printf("-1 %s, ", strerrorname_np(errno));
    say_option(fd, level, name, text);
}

#define GET(fd, level, name) say_option(fd, level, name, #name)
#define SET(fd, level, name, value) set_option(fd, level, name, #name, value)

static void facts(int fd) {
    GET(fd, SOL_SOCKET, SO_TYPE);
    GET(fd, SOL_SOCKET, SO_DOMAIN);
    GET(fd, SOL_SOCKET, SO_PROTOCOL);
    GET(fd, SOL_SOCKET, SO_ACCEPTCONN);
    GET(fd, SOL_SOCKET, SO_ERROR);
    GET(fd, SOL_SOCKET, SO_PEEK_OFF);
}

/* Without SO_TIMESTAMP and its kin, which are refused at user level: docs/user-level-sockets.md. */
static void switches(int fd) {
    static const int values[] = {1, 0, 7};
    for (int index = 0; index < 3; index++) {
        SET(fd, SOL_SOCKET, SO_KEEPALIVE, values[index]);
        SET(fd, SOL_SOCKET, SO_REUSEADDR, values[index]);
        SET(fd, SOL_SOCKET, SO_REUSEPORT, values[index]);
        SET(fd, SOL_SOCKET, SO_BROADCAST, values[index]);
        SET(fd, SOL_SOCKET, SO_OOBINLINE, values[index]);
        SET(fd, SOL_SOCKET, SO_DONTROUTE, values[index]);
        SET(fd, IPPROTO_TCP, TCP_NODELAY, values[index]);
        SET(fd, IPPROTO_TCP, TCP_CORK, values[index]);
    }
}

static void numbers(int fd) {
    SET(fd, IPPROTO_TCP, TCP_KEEPIDLE, 33);
    SET(fd, IPPROTO_TCP, TCP_KEEPINTVL, 44);
    SET(fd, IPPROTO_TCP, TCP_KEEPCNT, 5);
    SET(fd, IPPROTO_TCP, TCP_KEEPIDLE, 0);
    SET(fd, IPPROTO_TCP, TCP_KEEPINTVL, 40000);
    SET(fd, IPPROTO_TCP, TCP_KEEPCNT, 128);
    SET(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 1234);
    SET(fd, IPPROTO_TCP, TCP_LINGER2, 12);
    SET(fd, IPPROTO_TCP, TCP_SYNCNT, 4);
    SET(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, 0);
    SET(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, 16384);
    SET(fd, SOL_SOCKET, SO_PRIORITY, 3);
    SET(fd, SOL_SOCKET, SO_RCVLOWAT, 1);
    SET(fd, SOL_SOCKET, SO_BUSY_POLL, 0);
    SET(fd, IPPROTO_IP, IP_TOS, 0x10);
    SET(fd, IPPROTO_IP, IP_TOS, 0x13);
    SET(fd, IPPROTO_IP, IP_TOS, 300);
    SET(fd, IPPROTO_IP, IP_TTL, 77);
    SET(fd, IPPROTO_IP, IP_TTL, 0);
    SET(fd, IPPROTO_IP, IP_TTL, 256);
    SET(fd, IPPROTO_IP, IP_TTL, -1);
    SET(fd, IPPROTO_TCP, TCP_LINGER2, 121);
    SET(fd, IPPROTO_TCP, TCP_LINGER2, -7);
    SET(fd, IPPROTO_TCP, TCP_SYNCNT, 0);
    SET(fd, IPPROTO_TCP, TCP_SYNCNT, 128);
    SET(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, 1);
    SET(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, 5);
    SET(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, 300);
    SET(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, -3);
    SET(fd, SOL_SOCKET, SO_PRIORITY, 0);
    SET(fd, SOL_SOCKET, SO_MARK, 0);
    SET(fd, SOL_SOCKET, SO_BUSY_POLL, -1);
    uint8_t byte = 0x20;
    SAY(setsockopt(fd, IPPROTO_IP, IP_TOS, &byte, 1));
    GET(fd, IPPROTO_IP, IP_TOS);
}

static void wrong(int fd) {
    int value = 1;
    SAY(setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &value, 2));
    SAY(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &value, 1));
    SAY(setsockopt(fd, SOL_SOCKET, 9999, &value, sizeof value));
    SAY(setsockopt(fd, IPPROTO_TCP, 9999, &value, sizeof value));
    SAY(setsockopt(fd, 9999, 1, &value, sizeof value));
    socklen_t length = sizeof value;
    SAY(getsockopt(fd, SOL_SOCKET, 9999, &value, &length));
    SAY(getsockopt(fd, IPPROTO_TCP, 9999, &value, &length));
    SAY(getsockopt(fd, 9999, 1, &value, &length));
    SAY(setsockopt(fd, SOL_SOCKET, SO_TYPE, &value, sizeof value));
    SAY(setsockopt(fd, SOL_SOCKET, SO_ERROR, &value, sizeof value));
    SAY(setsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &value, sizeof value));
    length = 2;
    value = 0x7f7f7f7f;
    SAY(getsockopt(fd, SOL_SOCKET, SO_TYPE, &value, &length));
    printf("%x %u\n", value, length);
    length = 0;
    SAY(getsockopt(fd, SOL_SOCKET, SO_TYPE, &value, &length));
    length = (socklen_t)-1;
    SAY(getsockopt(fd, SOL_SOCKET, SO_TYPE, &value, &length));
    int places[4] = {9, 9, 9, 9};
    length = sizeof places;
    SAY(getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, places, &length));
    printf("%d %d %u\n", places[0], places[1], length);
}

static void times(int fd) {
    struct timeval limits[] = {{2, 500000}, {0, 0}, {0, 1000000}, {-1, 0}};
    for (int index = 0; index < 4; index++) {
        struct timeval told = {9, 9};
        socklen_t length = sizeof told;
        SAY(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limits[index], sizeof told));
        SAY(getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &told, &length));
        printf("%ld %ld %u\n", told.tv_sec, told.tv_usec, length);
        SAY(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limits[index], sizeof told));
        SAY(getsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &told, &length));
        printf("%ld %ld %u\n", told.tv_sec, told.tv_usec, length);
    }
    SAY(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, limits, 4));
}

static void sensible(int fd) {
    int value = 40000;
    MUST(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &value, sizeof value));
    MUST(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &value, sizeof value));
    printf("buffers %d %d\n", option_of(fd, SOL_SOCKET, SO_RCVBUF) >= 40000, option_of(fd, SOL_SOCKET, SO_SNDBUF) >= 40000);
    printf("segment %d\n", option_of(fd, IPPROTO_TCP, TCP_MAXSEG) > 0);
    char name[32] = "";
    socklen_t length = sizeof name;
    printf("congestion %d\n", getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &length) == 0 && name[0] != 0);
    struct tcp_info info;
    memset(&info, 0, sizeof info);
    length = sizeof info;
    printf("info %d", getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length));
    printf(" state %d\n", info.tcpi_state);
    SET(fd, IPPROTO_TCP, TCP_QUICKACK, 1);
    fflush(stdout);
}

static void inherited(void) {
    title("what an accepted socket has of its listener");
    int listener = listening(2), on = 1, idle = 55, seconds = 9;
    struct timeval limit = {3, 0};
    struct linger linger = {1, 6};
    MUST(setsockopt(listener, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on));
    MUST(setsockopt(listener, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle));
    MUST(setsockopt(listener, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on));
    MUST(setsockopt(listener, IPPROTO_TCP, TCP_LINGER2, &seconds, sizeof seconds));
    MUST(setsockopt(listener, IPPROTO_TCP, TCP_SYNCNT, &seconds, sizeof seconds));
    MUST(setsockopt(listener, IPPROTO_IP, IP_TTL, &seconds, sizeof seconds));
    MUST(setsockopt(listener, SOL_SOCKET, SO_PRIORITY, &on, sizeof on));
    MUST(setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
    MUST(setsockopt(listener, SOL_SOCKET, SO_LINGER, &linger, sizeof linger));
    nonblocking(listener);
    int a = connected_to(port_of(listener));
    await(listener, POLLIN);
    int b = accept(listener, NULL, NULL);
    GET(b, SOL_SOCKET, SO_KEEPALIVE);
    GET(b, IPPROTO_TCP, TCP_KEEPIDLE);
    GET(b, IPPROTO_TCP, TCP_NODELAY);
    GET(b, IPPROTO_TCP, TCP_LINGER2);
    GET(b, IPPROTO_TCP, TCP_SYNCNT);
    GET(b, IPPROTO_TCP, TCP_DEFER_ACCEPT);
    GET(b, IPPROTO_IP, IP_TTL);
    GET(b, SOL_SOCKET, SO_PRIORITY);
    GET(b, SOL_SOCKET, SO_REUSEADDR);
    struct timeval told;
    socklen_t length = sizeof told;
    MUST(getsockopt(b, SOL_SOCKET, SO_RCVTIMEO, &told, &length));
    printf("time %ld\n", told.tv_sec);
    length = sizeof linger;
    MUST(getsockopt(b, SOL_SOCKET, SO_LINGER, &linger, &length));
    printf("linger %d %d\n", linger.l_onoff, linger.l_linger);
    printf("flags %x\n", fcntl(b, F_GETFL) & O_NONBLOCK);
    facts(listener);
    close(a);
    close(b);
    close(listener);
}

static void kept(void) {
    title("what a socket keeps when it is connected");
    int listener = listening(2), on = 1, count = 3;
    int a = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct timeval limit = {0, 30000};
    struct linger linger = {1, 9};
    MUST(setsockopt(a, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on));
    MUST(setsockopt(a, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on));
    MUST(setsockopt(a, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count));
    MUST(setsockopt(a, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
    MUST(setsockopt(a, SOL_SOCKET, SO_LINGER, &linger, sizeof linger));
    struct sockaddr_in address = loopback(port_of(listener));
    MUST(connect(a, (struct sockaddr *)&address, sizeof address));
    int b = accept(listener, NULL, NULL);
    GET(a, SOL_SOCKET, SO_KEEPALIVE);
    GET(a, IPPROTO_TCP, TCP_NODELAY);
    GET(a, IPPROTO_TCP, TCP_KEEPCNT);
    GET(a, SOL_SOCKET, SO_LINGER);
    printf("flags %x %x\n", fcntl(a, F_GETFL) & (O_NONBLOCK | O_ACCMODE), fcntl(a, F_GETFD));
    char got[4];
    long began = now_ms();
    SAY(recv(a, got, 4, 0));
    SAY(read(a, got, 4));
    printf("waited %d\n", now_ms() - began >= 55);
    SAY(recv(a, got, 4, MSG_WAITALL));
    send(b, "xy", 2, 0);
    SAY(recv(a, got, 4, MSG_WAITALL));
    close(a);
    close(b);
    /* The time of waiting to accept. */
    MUST(setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
    SAY(accept(listener, NULL, NULL));
    close(listener);
}

static void low_water(void) {
    title("SO_RCVLOWAT");
    struct ends ends = connected();
    int low = 10;
    char got[32];
    SAY(setsockopt(ends.b, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof low));
    GET(ends.b, SOL_SOCKET, SO_RCVLOWAT);
    send(ends.a, "12345", 5, 0);
    await_bytes(ends.b, 5);
    say_events("five", ends.b);
    SAY(recv(ends.b, got, 32, MSG_DONTWAIT));
    send(ends.a, "1234567890ab", 12, 0);
    await_bytes(ends.b, 12);
    say_events("twelve", ends.b);
    SAY(recv(ends.b, got, 32, 0));
    close_both(ends);
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    struct ends ends = connected();
    title("facts of who connected");
    facts(ends.a);
    title("facts of who accepted");
    facts(ends.b);
    title("switches");
    switches(ends.a);
    title("numbers");
    numbers(ends.b);
    title("wrong uses");
    wrong(ends.a);
    title("times");
    times(ends.b);
    title("sensible");
    sensible(ends.a);
    GET(ends.a, IPPROTO_TCP, TCP_FASTOPEN);
    char byte;
    struct timeval none = {0, 0};
    MUST(setsockopt(ends.b, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof none));
    send(ends.a, "x", 1, 0);
    SAY(recv(ends.b, &byte, 1, 0));
    close_both(ends);
    inherited();
    kept();
    low_water();
    return 0;
}
