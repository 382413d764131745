/* Making, naming, listening, connecting, accepting, closing. */
#include "calls.h"

static void say_name(const char *what, int (*call)(int, struct sockaddr *, socklen_t *), int fd, uint16_t expected) {
    struct sockaddr_storage address;
    memset(&address, 0xee, sizeof address);
    socklen_t length = sizeof address;
    if (call(fd, (struct sockaddr *)&address, &length) == -1) {
        printf("%s: -1 %s\n", what, strerrorname_np(errno));
        return;
    }
    char text[64] = "";
    if (address.ss_family == AF_INET)
        inet_ntop(AF_INET, &((struct sockaddr_in *)&address)->sin_addr, text, sizeof text);
    else if (address.ss_family == AF_INET6)
        inet_ntop(AF_INET6, &((struct sockaddr_in6 *)&address)->sin6_addr, text, sizeof text);
    uint16_t port = ntohs(((struct sockaddr_in *)&address)->sin_port);
    printf("%s: family %d length %u address %s port %s\n", what, address.ss_family, length, text,
           port == 0 ? "0" : port == expected ? "expected" : "other");
    fflush(stdout);
}

static void names(void) {
    title("names");
    int listener = listening(4);
    uint16_t port = port_of(listener);
    int a = connected_to(port);
    struct sockaddr_storage address;
    socklen_t length = sizeof address;
    int b = SAY_OK(accept(listener, (struct sockaddr *)&address, &length));
    printf("accepted: family %d length %u port %d\n", address.ss_family, length,
           ntohs(((struct sockaddr_in *)&address)->sin_port) == port_of(a));
    say_name("a local", getsockname, a, port_of(a));
    say_name("a peer", getpeername, a, port);
    say_name("b local", getsockname, b, port);
    say_name("b peer", getpeername, b, port_of(a));
    say_name("listener local", getsockname, listener, port);
    say_name("listener peer", getpeername, listener, 0);
    length = 4;
    memset(&address, 0xee, sizeof address);
    SAY(getsockname(a, (struct sockaddr *)&address, &length));
    printf("cut short: length %u fifth byte %x\n", length, ((uint8_t *)&address)[4]);
    length = (socklen_t)-1;
    SAY(getpeername(a, (struct sockaddr *)&address, &length));
    close(a);
    close(b);
    int fresh = socket(AF_INET, SOCK_STREAM, 0);
    say_name("fresh local", getsockname, fresh, 0);
    say_name("fresh peer", getpeername, fresh, 0);
    close(fresh);
    SAY(getsockname(fresh, (struct sockaddr *)&address, &length));
    close(listener);
}

static void wrong_uses(void) {
    title("wrong uses");
    struct sockaddr_in address = loopback(0);
    struct sockaddr_un other = {.sun_family = AF_UNIX};
    int fd = SAY_OK(socket(AF_INET, SOCK_STREAM, IPPROTO_TCP));
    SAY(accept(fd, NULL, NULL));
    SAY(send(fd, "x", 1, MSG_NOSIGNAL));
    SAY(recv(fd, &address, 1, 0));
    SAY(shutdown(fd, SHUT_RDWR));
    say_events("fresh", fd);
    SAY(connect(fd, (struct sockaddr *)&other, sizeof other));
    SAY(connect(fd, (struct sockaddr *)&address, 4));
    SAY(connect(fd, NULL, sizeof address));
    SAY(bind(fd, (struct sockaddr *)&address, 3));
    SAY(bind(fd, (struct sockaddr *)&address, sizeof address));
    SAY(bind(fd, (struct sockaddr *)&address, sizeof address));
    SAY(listen(fd, 0));
    SAY(listen(fd, 5));
    SAY(listen(fd, -1));
    address = loopback(port_of(fd));
    SAY(connect(fd, (struct sockaddr *)&address, sizeof address));
    SAY(send(fd, "x", 1, MSG_NOSIGNAL));
    SAY(recv(fd, &address, 1, 0));
    say_events("listener", fd);
    SAY(fcntl(fd, F_SETFL, O_NONBLOCK));
    SAY(accept(fd, NULL, NULL));
    SAY(accept4(fd, NULL, NULL, 0x7777));
    SAY(accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC));
    int second = socket(AF_INET, SOCK_STREAM, 0);
    address = loopback(port_of(fd));
    SAY(bind(second, (struct sockaddr *)&address, sizeof address));
    close(second);
    close(fd);
    SAY(socket(AF_INET, SOCK_STREAM, IPPROTO_UDP));
    SAY(socket(AF_INET, 99, 0));
    SAY(close(fd));
    SAY(send(fd, "x", 1, 0));
    SAY(recv(fd, &address, 1, 0));
    SAY(read(fd, &address, 1));
    SAY(write(fd, "x", 1));
    SAY(connect(fd, (struct sockaddr *)&address, sizeof address));
    SAY(listen(fd, 1));
    SAY(accept(fd, NULL, NULL));
    SAY(shutdown(fd, SHUT_WR));
    SAY(getpeername(fd, NULL, NULL));
    int pipes[2];
    MUST(pipe(pipes));
    SAY(send(pipes[1], "x", 1, 0));
    SAY(listen(pipes[1], 1));
    SAY(connect(pipes[1], (struct sockaddr *)&address, sizeof address));
    close(pipes[0]);
    close(pipes[1]);
    SAY(close(-1));
    SAY(close(1 << 20));
}

static void connecting(void) {
    title("connecting");
    int listener = listening(4);
    struct sockaddr_in address = loopback(port_of(listener));
    int a = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    SAY(connect(a, (struct sockaddr *)&address, sizeof address));
    await(a, POLLOUT);
    printf("error %d\n", option_of(a, SOL_SOCKET, SO_ERROR));
    int again = connect(a, (struct sockaddr *)&address, sizeof address);
    int error = errno;
    printf("again %s\n", again == 0 ? "0 once" : strerrorname_np(error));
    SAY(connect(a, (struct sockaddr *)&address, sizeof address));
    SAY(listen(a, 1));
    SAY(bind(a, (struct sockaddr *)&address, sizeof address));
    await(listener, POLLIN);
    say_events("listener", listener);
    int b = SAY_OK(accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC));
    printf("flags %x %x\n", fcntl(b, F_GETFL) & (O_NONBLOCK | O_ACCMODE), fcntl(b, F_GETFD));
    printf("flags of a %x %x\n", fcntl(a, F_GETFL) & (O_NONBLOCK | O_ACCMODE), fcntl(a, F_GETFD));
    say_events("a", a);
    say_events("b", b);
    SAY(accept(b, NULL, NULL));
    SAY(listen(b, 1));
    close(a);
    close(b);
    /* A backlog of connections that nobody has taken yet can be used already. */
    int early[3];
    for (int index = 0; index < 3; index++) {
        early[index] = connected_to(port_of(listener));
        SAY(send(early[index], "early", 5, 0));
    }
    for (int index = 0; index < 3; index++) {
        char bytes[8];
        int taken = SAY_OK(accept(listener, NULL, NULL));
        printf("flags %x %x\n", fcntl(taken, F_GETFL) & O_NONBLOCK, fcntl(taken, F_GETFD));
        SAY(recv(taken, bytes, sizeof bytes, 0));
        close(taken);
    }
    for (int index = 0; index < 3; index++)
        close(early[index]);
    /* Who waits to be accepted when the listener goes is reset. */
    a = connected_to(port_of(listener));
    close(listener);
    await(a, POLLIN | POLLHUP);
    char byte;
    SAY(recv(a, &byte, 1, 0));
    close(a);
    a = socket(AF_INET, SOCK_STREAM, 0);
    SAY(connect(a, (struct sockaddr *)&address, sizeof address));
    say_events("refused", a);
    SAY(send(a, "x", 1, MSG_NOSIGNAL));
    close(a);
    a = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    int begun = connect(a, (struct sockaddr *)&address, sizeof address);
    if (begun == -1 && errno == EINPROGRESS) {
        await(a, POLLOUT | POLLERR);
        printf("refused later: %d\n", option_of(a, SOL_SOCKET, SO_ERROR));
    } else {
        printf("refused later: %d\n", begun == -1 ? errno : 0);
    }
    close(a);
}

static void addresses(void) {
    title("addresses");
    struct sockaddr_in any = {.sin_family = AF_INET};
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    int on = 1;
    MUST(setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
    SAY(bind(listener, (struct sockaddr *)&any, sizeof any));
    SAY(listen(listener, 8));
    say_name("any", getsockname, listener, port_of(listener));
    const char *places[] = {"127.0.0.1", "127.0.0.9", "127.255.255.254", "0.0.0.0"};
    for (size_t index = 0; index < 4; index++) {
        struct sockaddr_in place = {.sin_family = AF_INET, .sin_port = htons(port_of(listener))};
        inet_pton(AF_INET, places[index], &place.sin_addr);
        int a = socket(AF_INET, SOCK_STREAM, 0);
        printf("to %s\n", places[index]);
        SAY(connect(a, (struct sockaddr *)&place, sizeof place));
        int b = accept(listener, NULL, NULL);
        say_name("a local", getsockname, a, port_of(a));
        say_name("a peer", getpeername, a, port_of(listener));
        say_name("b local", getsockname, b, port_of(listener));
        close(a);
        close(b);
    }
    /* The same port again, while its old connections are closed only just. */
    uint16_t port = port_of(listener);
    close(listener);
    listener = socket(AF_INET, SOCK_STREAM, 0);
    any.sin_port = htons(port);
    MUST(setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
    SAY(bind(listener, (struct sockaddr *)&any, sizeof any));
    SAY(listen(listener, 8));
    /* Bound before it connects. */
    int a = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in own = loopback(0);
    own.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 4);
    SAY(bind(a, (struct sockaddr *)&own, sizeof own));
    uint16_t bound = port_of(a);
    struct sockaddr_in target = loopback(port);
    SAY(connect(a, (struct sockaddr *)&target, sizeof target));
    int b = accept(listener, NULL, NULL);
    say_name("bound local", getsockname, a, bound);
    say_name("bound peer", getpeername, b, bound);
    close(a);
    close(b);
    close(listener);
}

static void sixes(void) {
    title("IPv6");
    for (int only = 0; only < 2; only++) {
        struct sockaddr_in6 any = {.sin6_family = AF_INET6};
        int listener = socket(AF_INET6, SOCK_STREAM, 0);
        MUST(setsockopt(listener, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof only));
        SAY(bind(listener, (struct sockaddr *)&any, sizeof any));
        SAY(listen(listener, 8));
        any.sin6_port = htons(port_of(listener));
        any.sin6_addr = in6addr_loopback;
        int a = socket(AF_INET6, SOCK_STREAM, 0);
        SAY(connect(a, (struct sockaddr *)&any, sizeof any));
        int b = accept(listener, NULL, NULL);
        say_name("a local", getsockname, a, port_of(a));
        say_name("a peer", getpeername, a, port_of(listener));
        say_name("b local", getsockname, b, port_of(listener));
        say_name("b peer", getpeername, b, port_of(a));
        close(a);
        close(b);
        struct sockaddr_in four = loopback(port_of(listener));
        a = socket(AF_INET, SOCK_STREAM, 0);
        if (SAY(connect(a, (struct sockaddr *)&four, sizeof four)) == 0) {
            b = accept(listener, NULL, NULL);
            say_name("b local", getsockname, b, port_of(listener));
            say_name("b peer", getpeername, b, port_of(a));
            close(b);
        }
        close(a);
        /* An IPv4 address written as IPv6. */
        struct sockaddr_in6 mapped = {.sin6_family = AF_INET6, .sin6_port = any.sin6_port};
        inet_pton(AF_INET6, "::ffff:127.0.0.1", &mapped.sin6_addr);
        a = socket(AF_INET6, SOCK_STREAM, 0);
        if (SAY(connect(a, (struct sockaddr *)&mapped, sizeof mapped)) == 0) {
            say_name("a local", getsockname, a, port_of(a));
            say_name("a peer", getpeername, a, port_of(listener));
            b = accept(listener, NULL, NULL);
            close(b);
        }
        close(a);
        close(listener);
    }
}

static void shared_port(void) {
    title("SO_REUSEPORT");
    int listeners[3], on = 1;
    struct sockaddr_in address = loopback(0);
    for (int index = 0; index < 3; index++) {
        listeners[index] = nonblocking(socket(AF_INET, SOCK_STREAM, 0));
        MUST(setsockopt(listeners[index], SOL_SOCKET, SO_REUSEPORT, &on, sizeof on));
        SAY(bind(listeners[index], (struct sockaddr *)&address, sizeof address));
        SAY(listen(listeners[index], 32));
        address = loopback(port_of(listeners[index]));
    }
    int fds[24], taken = 0;
    for (int index = 0; index < 24; index++)
        fds[index] = connected_to(ntohs(address.sin_port));
    for (long limit = now_ms() + HANG_MS; taken < 24 && now_ms() < limit;)
        for (int index = 0; index < 3; index++) {
            int fd = accept(listeners[index], NULL, NULL);
            if (fd >= 0) {
                taken++;
                close(fd);
            } else {
                sched_yield();
            }
        }
    printf("taken %d\n", taken);
    for (int index = 0; index < 24; index++)
        close(fds[index]);
    for (int index = 0; index < 3; index++)
        close(listeners[index]);
}

static void one_at_a_time(void) {
    title("many, one at a time");
    int listener = listening(16);
    unsigned sum = 0;
    for (int index = 0; index < 500; index++) {
        int a = connected_to(port_of(listener));
        int b = (int)MUST(accept(listener, NULL, NULL));
        uint8_t byte = (uint8_t)index, got = 0;
        MUST(send(a, &byte, 1, 0));
        MUST(recv(b, &got, 1, 0));
        sum += got;
        close(index % 2 ? a : b);
        sum += (unsigned)MUST(recv(index % 2 ? b : a, &got, 1, 0));
        close(index % 2 ? b : a);
    }
    printf("sum %u\n", sum);
    /* Descriptors are given out lowest first, as the kernel does. */
    int a = connected_to(port_of(listener));
    printf("lowest %d\n", a == listener + 1);
    close(a);
    close(listener);
}

int main(void) {
    names();
    wrong_uses();
    connecting();
    addresses();
    sixes();
    shared_port();
    one_at_a_time();
    int pair[2];
    title("socketpair");
    SAY(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    SAY(send(pair[0], "abc", 3, 0));
    char bytes[8];
    SAY(recv(pair[1], bytes, 8, 0));
    SAY(socketpair(AF_INET, SOCK_STREAM, 0, pair));
    return 0;
}
