#include "talk.h"

_Noreturn void die(const char *what) {
    fprintf(stderr, "talk: %s: %s\n", what, strerror(errno));
    exit(1);
}

uint64_t nanoseconds(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

enum mode mode_of(const char *name) {
    if (!strcmp(name, "blocking")) return BLOCKING;
    if (!strcmp(name, "polling")) return POLLING;
    if (!strcmp(name, "epoll")) return EPOLL;
    errno = EINVAL;
    die(name);
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

static void set_no_delay(int fd, const char *kind) {
    int one = 1;
    if (kind[0] == 't' && setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one)) die("TCP_NODELAY");
}

int listen_on(const char *kind) {
    struct sockaddr_storage address;
    socklen_t length;
    int listener = open_socket(kind, &address, &length), one = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (kind[0] == 'u') unlink(kind + 5);
    if (bind(listener, (struct sockaddr *)&address, length)) die("bind");
    if (listen(listener, 4096)) die("listen");
    puts("ready");
    fflush(stdout);
    return listener;
}

int connect_to(const char *kind) {
    struct sockaddr_storage address;
    socklen_t length;
    int fd = open_socket(kind, &address, &length);
    if (connect(fd, (struct sockaddr *)&address, length)) die("connect");
    set_no_delay(fd, kind);
    return fd;
}

int accept_from(int listener, const char *kind) {
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0) die("accept");
    set_no_delay(fd, kind);
    return fd;
}

void set_nonblocking(int fd) {
    if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK)) die("O_NONBLOCK");
}

int make_set(enum mode mode, const int *fds, int count) {
    if (mode != EPOLL) return -1;
    int set = epoll_create1(EPOLL_CLOEXEC);
    if (set < 0) die("epoll_create1");
    for (int i = 0; i < count; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.fd = fds[i]};
        if (epoll_ctl(set, EPOLL_CTL_ADD, fds[i], &event)) die("epoll_ctl");
    }
    return set;
}

void await(int fd, enum mode mode, int set, uint32_t events) {
    if (mode != EPOLL) return;
    struct epoll_event event = {.events = events, .data.fd = fd};
    if (epoll_ctl(set, EPOLL_CTL_MOD, fd, &event)) die("epoll_ctl");
    if (epoll_wait(set, &event, 1, -1) < 0 && errno != EINTR) die("epoll_wait");
}

void send_all(int fd, enum mode mode, int set, const void *bytes, size_t size) {
    const char *next = bytes;
    while (size) {
        ssize_t count = send(fd, next, size, MSG_NOSIGNAL);
        if (count > 0) {
            next += count;
            size -= (size_t)count;
        } else if (errno == EAGAIN) {
            await(fd, mode, set, EPOLLOUT);
        } else if (errno != EINTR) {
            die("send");
        }
    }
}

size_t receive_all(int fd, enum mode mode, int set, void *bytes, size_t size) {
    size_t done = 0;
    while (done < size) {
        ssize_t count = recv(fd, (char *)bytes + done, size - done, 0);
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

pthread_t start(void *(*run)(void *), void *what) {
    pthread_t thread;
    errno = pthread_create(&thread, NULL, run, what);
    if (errno) die("pthread_create");
    return thread;
}

static int by_value(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

void print_trips(uint64_t *times, size_t count, double elapsed_ns, uint64_t bytes, const char *more) {
    if (!count) {
        fputs("talk: too short a time: nothing came back\n", stderr);
        exit(1);
    }
    qsort(times, count, sizeof *times, by_value);
    printf("{\"p50_ns\": %lu, \"p99_ns\": %lu, \"p999_ns\": %lu, \"messages_a_second\": %.0f, \"bytes\": %lu%s}\n",
           times[count / 2], times[count * 99 / 100], times[count * 999 / 1000], (double)count * 1e9 / elapsed_ns,
           bytes, more);
}

void print_flood(uint64_t elapsed_ns, size_t size, size_t count) {
    printf("{\"messages_a_second\": %.0f, \"bytes_a_second\": %.0f, \"bytes\": %lu}\n",
           (double)count * 1e9 / (double)elapsed_ns, (double)count * (double)size * 1e9 / (double)elapsed_ns,
           (uint64_t)size * count);
}
