/* Two programs that talk over a stream and know nothing of what carries it.
 *
 *   talk serve KIND MODE SIZE
 *   talk ask   KIND MODE SIZE COUNT CONNECTIONS trips|flood
 *   talk ring  SIZE COUNT trips|flood FIRST-CPU SECOND-CPU
 *
 * KIND is tcp:PORT or unix:PATH. MODE says how a side waits: blocking, polling (non-blocking calls in a loop) or
 * epoll. trips: messages of SIZE bytes there and back, one at a time, over the connections in turn. flood: COUNT
 * messages one way over the first connection, then one byte back. ring: two processes and a ring in memory they
 * share, the least that any of this can take. Prints one line of JSON.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum mode { BLOCKING, POLLING, EPOLL };

static void die(const char *what) {
    fprintf(stderr, "talk: %s: %s\n", what, strerror(errno));
    exit(1);
}

static uint64_t nanoseconds(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static enum mode mode_of(const char *name) {
    if (!strcmp(name, "blocking")) return BLOCKING;
    if (!strcmp(name, "polling")) return POLLING;
    if (!strcmp(name, "epoll")) return EPOLL;
    errno = EINVAL;
    die(name);
    return BLOCKING;
}

static int open_socket(const char *kind, struct sockaddr_storage *address, socklen_t *size) {
    memset(address, 0, sizeof *address);
    if (!strncmp(kind, "tcp:", 4)) {
        struct sockaddr_in *in = (struct sockaddr_in *)address;
        in->sin_family = AF_INET;
        in->sin_port = htons((uint16_t)atoi(kind + 4));
        in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        *size = sizeof *in;
    } else if (!strncmp(kind, "unix:", 5)) {
        struct sockaddr_un *un = (struct sockaddr_un *)address;
        un->sun_family = AF_UNIX;
        strncpy(un->sun_path, kind + 5, sizeof un->sun_path - 1);
        *size = sizeof *un;
    } else {
        errno = EINVAL;
        die(kind);
    }
    int fd = socket(address->ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) die("socket");
    return fd;
}

static void prepare(int fd, const char *kind, enum mode mode) {
    int one = 1;
    if (kind[0] == 't' && setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one)) die("TCP_NODELAY");
    if (mode != BLOCKING && fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK)) die("O_NONBLOCK");
}

static void await(int fd, enum mode mode, int set, uint32_t events) {
    if (mode != EPOLL) return;
    struct epoll_event event = {.events = events, .data.fd = fd};
    if (epoll_ctl(set, EPOLL_CTL_MOD, fd, &event)) die("epoll_ctl");
    if (epoll_wait(set, &event, 1, -1) < 0 && errno != EINTR) die("epoll_wait");
}

/* Sends all; waits as the mode says when it must. */
static void send_all(int fd, enum mode mode, int set, const char *bytes, size_t size) {
    while (size) {
        ssize_t count = send(fd, bytes, size, MSG_NOSIGNAL);
        if (count > 0) {
            bytes += count;
            size -= (size_t)count;
        } else if (errno == EAGAIN) {
            await(fd, mode, set, EPOLLOUT);
        } else if (errno != EINTR) {
            die("send");
        }
    }
}

/* Receives `size` bytes, or fewer at the end; looks first and waits then. */
static size_t receive_all(int fd, enum mode mode, int set, char *bytes, size_t size) {
    size_t done = 0;
    while (done < size) {
        ssize_t count = recv(fd, bytes + done, size - done, 0);
        if (count > 0) {
            done += (size_t)count;
        } else if (count == 0) {
            break;
        } else if (errno == EAGAIN) {
            await(fd, mode, set, EPOLLIN);
        } else if (errno != EINTR) {
            die("recv");
        }
    }
    return done;
}

static int make_set(enum mode mode, const int *fds, int count) {
    if (mode != EPOLL) return -1;
    int set = epoll_create1(EPOLL_CLOEXEC);
    if (set < 0) die("epoll_create1");
    for (int i = 0; i < count; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.fd = fds[i]};
        if (epoll_ctl(set, EPOLL_CTL_ADD, fds[i], &event)) die("epoll_ctl");
    }
    return set;
}

/* What the asking side wants is its first eight bytes: 0 trips, else the bytes of a flood. */
static void serve_one(int fd, enum mode mode, char *bytes, size_t size) {
    int set = make_set(mode, &fd, 1);
    uint64_t flood;
    if (receive_all(fd, mode, set, (char *)&flood, sizeof flood) < sizeof flood) exit(0);
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
        int fd = accept(listener, NULL, NULL);
        if (fd < 0) die("accept");
        uint64_t flood;
        receive_all(fd, BLOCKING, -1, (char *)&flood, sizeof flood);
        prepare(fd, kind, EPOLL);
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

static int by_value(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void print_trips(uint64_t *times, size_t count) {
    qsort(times, count, sizeof *times, by_value);
    printf("{\"p50_ns\": %lu, \"p99_ns\": %lu, \"p999_ns\": %lu}\n", times[count / 2], times[count * 99 / 100],
           times[count * 999 / 1000]);
}

static void print_flood(uint64_t elapsed, size_t size, size_t count) {
    printf("{\"messages_a_second\": %.0f, \"bytes_a_second\": %.0f}\n", (double)count * 1e9 / (double)elapsed,
           (double)count * (double)size * 1e9 / (double)elapsed);
}

static void ask(const char *kind, enum mode mode, size_t size, size_t count, int connections, int is_flood) {
    int *fds = calloc((size_t)connections, sizeof *fds);
    char *bytes = calloc(1, size < 65536 ? 65536 : size);
    uint64_t flood = is_flood ? (uint64_t)size * count : 0;
    for (int i = 0; i < connections; i++) {
        struct sockaddr_storage address;
        socklen_t length;
        fds[i] = open_socket(kind, &address, &length);
        if (connect(fds[i], (struct sockaddr *)&address, length)) die("connect");
        send_all(fds[i], BLOCKING, -1, (const char *)&flood, sizeof flood);
        prepare(fds[i], kind, mode);
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
    uint64_t *times = calloc(count, sizeof *times);
    for (size_t i = 0; i < warm + count; i++) {
        int fd = fds[i % (size_t)connections];
        uint64_t start = nanoseconds();
        send_all(fd, mode, set, bytes, size);
        if (receive_all(fd, mode, set, bytes, size) != size) die("cut short");
        if (i >= warm) times[i - warm] = nanoseconds() - start;
    }
    print_trips(times, count);
}

/* A ring of slots, each a counter and payload; the counter is the lap's number when the slot is full. */
struct ring {
    _Alignas(128) _Atomic uint64_t taken;
    _Alignas(128) char slots[];
};

enum { SLOTS = 64 };

static size_t stride_of(size_t size) { return (size + 8 + 63) / 64 * 64; }

static struct ring *make_ring(size_t size) {
    size_t bytes = sizeof(struct ring) + SLOTS * stride_of(size);
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED) die("mmap");
    return memory;
}

static void ring_put(struct ring *ring, uint64_t place, const char *bytes, size_t size) {
    char *slot = ring->slots + place % SLOTS * stride_of(size);
    while (place - atomic_load_explicit(&ring->taken, memory_order_acquire) >= SLOTS) __builtin_ia32_pause();
    memcpy(slot + 8, bytes, size);
    atomic_store_explicit((_Atomic uint64_t *)slot, place + 1, memory_order_release);
}

static void ring_take(struct ring *ring, uint64_t place, char *bytes, size_t size) {
    char *slot = ring->slots + place % SLOTS * stride_of(size);
    while (atomic_load_explicit((_Atomic uint64_t *)slot, memory_order_acquire) != place + 1) __builtin_ia32_pause();
    memcpy(bytes, slot + 8, size);
    if (place % (SLOTS / 2) == SLOTS / 2 - 1)
        atomic_store_explicit(&ring->taken, place + 1, memory_order_release);
}

static void pin(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set)) die("sched_setaffinity");
}

static void ring(size_t size, size_t count, int is_flood, int first, int second) {
    struct ring *there = make_ring(size), *back = make_ring(size);
    char *bytes = calloc(1, size);
    size_t warm = is_flood ? 0 : count / 10;
    pid_t child = fork();
    if (child < 0) die("fork");
    if (child == 0) {
        pin(second);
        for (uint64_t i = 0; i < warm + count; i++) {
            ring_take(there, i, bytes, size);
            if (!is_flood || i == count - 1) ring_put(back, is_flood ? 0 : i, bytes, size);
        }
        _exit(0);
    }
    pin(first);
    uint64_t start = nanoseconds();
    if (is_flood) {
        for (uint64_t i = 0; i < count; i++) ring_put(there, i, bytes, size);
        ring_take(back, 0, bytes, size);
        print_flood(nanoseconds() - start, size, count);
    } else {
        uint64_t *times = calloc(count, sizeof *times);
        for (uint64_t i = 0; i < warm + count; i++) {
            start = nanoseconds();
            ring_put(there, i, bytes, size);
            ring_take(back, i, bytes, size);
            if (i >= warm) times[i - warm] = nanoseconds() - start;
        }
        print_trips(times, count);
    }
    waitpid(child, NULL, 0);
}

static void serve(const char *kind, enum mode mode, size_t size) {
    struct sockaddr_storage address;
    socklen_t length;
    int listener = open_socket(kind, &address, &length), one = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (kind[0] == 'u') unlink(kind + 5);
    if (bind(listener, (struct sockaddr *)&address, length)) die("bind");
    if (listen(listener, 4096)) die("listen");
    puts("ready");
    fflush(stdout);
    char *bytes = calloc(1, size < 65536 ? 65536 : size);
    for (;;) {
        /* The number of connections that follow. */
        int fd = accept(listener, NULL, NULL);
        uint64_t connections;
        if (fd < 0) die("accept");
        if (receive_all(fd, BLOCKING, -1, (char *)&connections, sizeof connections) < sizeof connections) exit(0);
        send_all(fd, BLOCKING, -1, "", 1);
        close(fd);
        if (connections > 1) {
            serve_many(listener, (int)connections, kind, bytes, size);
            exit(0);
        }
        fd = accept(listener, NULL, NULL);
        if (fd < 0) die("accept");
        prepare(fd, kind, mode);
        serve_one(fd, mode, bytes, size);
    }
}

int main(int count, char **arguments) {
    if (count == 5 && !strcmp(arguments[1], "serve")) {
        serve(arguments[2], mode_of(arguments[3]), (size_t)atol(arguments[4]));
    } else if (count == 8 && !strcmp(arguments[1], "ask")) {
        struct sockaddr_storage address;
        socklen_t length;
        int fd = open_socket(arguments[2], &address, &length);
        uint64_t connections = (uint64_t)atol(arguments[6]);
        char byte;
        if (connect(fd, (struct sockaddr *)&address, length)) die("connect");
        send_all(fd, BLOCKING, -1, (const char *)&connections, sizeof connections);
        receive_all(fd, BLOCKING, -1, &byte, 1);
        close(fd);
        ask(arguments[2], mode_of(arguments[3]), (size_t)atol(arguments[4]), (size_t)atol(arguments[5]),
            (int)connections, !strcmp(arguments[7], "flood"));
    } else if (count == 7 && !strcmp(arguments[1], "ring")) {
        ring((size_t)atol(arguments[2]), (size_t)atol(arguments[3]), !strcmp(arguments[4], "flood"),
             atoi(arguments[5]), atoi(arguments[6]));
    } else {
        fputs("usage: talk serve KIND MODE SIZE | talk ask KIND MODE SIZE COUNT CONNECTIONS trips|flood |\n"
              "       talk ring SIZE COUNT trips|flood FIRST-CPU SECOND-CPU\n", stderr);
        return 2;
    }
    return 0;
}
