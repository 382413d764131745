#include "talk.h"

/* What the asking side wants is its first eight bytes: 0 trips, else the bytes of a flood. */
static void serve_one(int fd, enum mode mode, char *bytes, size_t size) {
    int set = make_set(mode, &fd, 1);
    uint64_t flood;
    if (receive_all(fd, mode, set, &flood, sizeof flood) < sizeof flood) exit(0);
    if (flood) {
        while (flood) {
            size_t want = flood < 65536 ? flood : 65536;
            ssize_t count = recv(fd, bytes, want, 0);
            if (count > 0) flood -= (uint64_t)count;
            else if (count == 0) die("cut short");
            else if (errno == EAGAIN) await(fd, mode, set, EPOLLIN);
            else die("recv");
        }
        send_all(fd, mode, set, "", 1);
    } else {
        while (receive_all(fd, mode, set, bytes, size) == size) send_all(fd, mode, set, bytes, size);
    }
    close(fd);
}

/* Serves many connections of trips from one epoll set until the first ends. */
static void serve_many(int listener, int connections, const char *kind, char *bytes, size_t size) {
    int set = epoll_create1(EPOLL_CLOEXEC);
    for (int i = 0; i < connections; i++) {
        int fd = accept_from(listener, kind);
        uint64_t flood;
        receive_all(fd, BLOCKING, -1, &flood, sizeof flood);
        set_nonblocking(fd);
        struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
        if (epoll_ctl(set, EPOLL_CTL_ADD, fd, &event)) die("epoll_ctl");
    }
    for (;;) {
        struct epoll_event events[64];
        int count = epoll_wait(set, events, 64, -1);
        for (int i = 0; i < count; i++) {
            int fd = events[i].data.fd;
            ssize_t got = recv(fd, bytes, size, 0);
            if (got == 0) return;
            if (got < 0) continue;
            send_all(fd, POLLING, -1, bytes, (size_t)got);
        }
    }
}

void trips_ask(const char *kind, enum mode mode, size_t size, size_t count, int connections, int is_flood) {
    int *fds = calloc((size_t)connections, sizeof *fds);
    char *bytes = calloc(1, size < 65536 ? 65536 : size);
    uint64_t flood = is_flood ? (uint64_t)size * count : 0, announced = (uint64_t)connections;
    int first = connect_to(kind);
    send_all(first, BLOCKING, -1, &announced, sizeof announced);
    if (receive_all(first, BLOCKING, -1, bytes, 1) != 1) die("cut short");
    close(first);
    for (int i = 0; i < connections; i++) {
        fds[i] = connect_to(kind);
        send_all(fds[i], BLOCKING, -1, &flood, sizeof flood);
        if (mode != BLOCKING) set_nonblocking(fds[i]);
    }
    int set = make_set(mode, fds, connections);
    if (is_flood) {
        uint64_t start = nanoseconds();
        for (size_t i = 0; i < count; i++) send_all(fds[0], mode, set, bytes, size);
        if (receive_all(fds[0], mode, set, bytes, 1) != 1) die("cut short");
        print_flood(nanoseconds() - start, size, count);
        return;
    }
    size_t warm = count / 10;
    uint64_t *times = calloc(count, sizeof *times), began = 0;
    for (size_t i = 0; i < warm + count; i++) {
        if (i == warm) began = nanoseconds();
        int fd = fds[i % (size_t)connections];
        uint64_t start = nanoseconds();
        send_all(fd, mode, set, bytes, size);
        if (receive_all(fd, mode, set, bytes, size) != size) die("cut short");
        if (i >= warm) times[i - warm] = nanoseconds() - start;
    }
    print_trips(times, count, (double)(nanoseconds() - began), 2 * size * (warm + count), "");
}

void trips_serve(const char *kind, enum mode mode, size_t size) {
    int listener = listen_on(kind);
    char *bytes = calloc(1, size < 65536 ? 65536 : size);
    for (;;) {
        /* The number of connections that follow. */
        int fd = accept_from(listener, kind);
        uint64_t connections;
        if (receive_all(fd, BLOCKING, -1, &connections, sizeof connections) < sizeof connections) exit(0);
        send_all(fd, BLOCKING, -1, "", 1);
        close(fd);
        if (connections > 1) {
            serve_many(listener, (int)connections, kind, bytes, size);
            exit(0);
        }
        fd = accept_from(listener, kind);
        if (mode != BLOCKING) set_nonblocking(fd);
        serve_one(fd, mode, bytes, size);
    }
}
