/* What the programs of this folder share: each prints what calls return, in lines that are the same on every run over
 * kernel TCP. Descriptor and port numbers, and whatever else TCP does not promise, are left out of the lines. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../../../../network/preload/tests/programs/blocked.h"

/* Longer than anything takes. */
#define LONG_MS 3000
/* The end of a wait that hangs, on a machine that is busy with other things. */
#define HANG_MS 30000

static inline long now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Prints a call's text and its result, or the error's name. */
static inline long said(const char *what, long result) {
    if (result == -1)
        printf("%s: -1 %s\n", what, strerrorname_np(errno));
    else
        printf("%s: %ld\n", what, result);
    fflush(stdout);
    return result;
}

/* The same for a call whose number means nothing. */
static inline int said_ok(const char *what, long result) {
    if (result == -1)
        printf("%s: -1 %s\n", what, strerrorname_np(errno));
    else
        printf("%s: ok\n", what);
    fflush(stdout);
    return (int)result;
}

#define SAY(call) said(#call, (long)(call))
#define SAY_OK(call) said_ok(#call, (long)(call))

static inline void title(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    printf("== ");
    vprintf(format, arguments);
    printf("\n");
    va_end(arguments);
    fflush(stdout);
}

/* Ends the program when what every run needs cannot be had. */
static inline long must_be(const char *what, long result) {
    if (result < 0) {
        printf("cannot go on: %s: %s\n", what, strerrorname_np(errno));
        fflush(stdout);
        _exit(1);
    }
    return result;
}
#define MUST(call) must_be(#call, (long)(call))

/* FNV-1a of bytes. */
static inline uint64_t digest(const void *bytes, size_t length) {
    uint64_t hash = 0xcbf29ce484222325;
    for (size_t index = 0; index < length; index++)
        hash = (hash ^ ((const uint8_t *)bytes)[index]) * 0x100000001b3;
    return hash;
}

/* Bytes that their place in the stream decides. */
static inline void pattern(uint8_t *bytes, size_t length, uint64_t place) {
    for (size_t index = 0; index < length; index++)
        bytes[index] = (uint8_t)(((place + index) * 2654435761u) >> 13 ^ (place + index));
}

static inline struct sockaddr_in loopback(uint16_t port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

static inline uint16_t port_of(int fd) {
    struct sockaddr_storage address;
    socklen_t length = sizeof address;
    MUST(getsockname(fd, (struct sockaddr *)&address, &length));
    return ntohs(((struct sockaddr_in *)&address)->sin_port);
}

/* A socket that listens on a port of the kernel's choice. */
static inline int listening(int backlog) {
    struct sockaddr_in address = loopback(0);
    int fd = (int)MUST(socket(AF_INET, SOCK_STREAM, 0));
    MUST(bind(fd, (struct sockaddr *)&address, sizeof address));
    MUST(listen(fd, backlog));
    return fd;
}

static inline int connected_to(uint16_t port) {
    struct sockaddr_in address = loopback(port);
    int fd = (int)MUST(socket(AF_INET, SOCK_STREAM, 0));
    MUST(connect(fd, (struct sockaddr *)&address, sizeof address));
    return fd;
}

/* Two ends of a connection: who connected, and who accepted. */
struct ends {
    int a, b;
};

static inline struct ends connected(void) {
    int listener = listening(8);
    struct ends ends;
    ends.a = connected_to(port_of(listener));
    ends.b = (int)MUST(accept(listener, NULL, NULL));
    close(listener);
    return ends;
}

static inline void close_both(struct ends ends) {
    close(ends.a);
    close(ends.b);
}

/* Waits until all of `events` are there. */
static inline void await(int fd, short events) {
    struct pollfd wanted = {.fd = fd, .events = events};
    for (long limit = now_ms() + HANG_MS; now_ms() < limit;) {
        MUST(poll(&wanted, 1, 1));
        if ((wanted.revents & events) == events)
            return;
        if (wanted.revents != 0 && (wanted.revents & events) != events)
            sched_yield();
    }
    printf("never seen: events %x\n", events);
    fflush(stdout);
}

/* Waits until so many bytes can be read. */
static inline void await_bytes(int fd, int count) {
    int pending = 0;
    for (long limit = now_ms() + HANG_MS; pending < count && now_ms() < limit;) {
        MUST(ioctl(fd, FIONREAD, &pending));
        if (pending < count)
            sched_yield();
    }
    if (pending < count)
        printf("never seen: %d bytes, only %d\n", count, pending);
}

static inline int nonblocking(int fd) {
    MUST(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK));
    return fd;
}

static inline int blocking(int fd) {
    MUST(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK));
    return fd;
}

/* Sends all, on a blocking socket. */
static inline void send_all(int fd, const void *bytes, size_t length) {
    for (size_t done = 0; done < length;)
        done += (size_t)MUST(send(fd, (const char *)bytes + done, length - done, MSG_NOSIGNAL));
}

/* Receives so many bytes, or fewer if the end comes first; returns how many. */
static inline size_t receive_all(int fd, void *bytes, size_t length) {
    size_t done = 0;
    while (done < length) {
        ssize_t got = recv(fd, (char *)bytes + done, length - done, 0);
        if (got <= 0)
            break;
        done += (size_t)got;
    }
    return done;
}

static inline const char *bits(unsigned events) {
    static char text[128];
    static const struct {
        unsigned bit;
        const char *name;
    } names[] = {{EPOLLIN, "IN"},         {EPOLLPRI, "PRI"},       {EPOLLOUT, "OUT"},       {EPOLLRDNORM, "RDNORM"},
                 {EPOLLRDBAND, "RDBAND"}, {EPOLLWRNORM, "WRNORM"}, {EPOLLWRBAND, "WRBAND"}, {EPOLLERR, "ERR"},
                 {EPOLLHUP, "HUP"},       {EPOLLRDHUP, "RDHUP"},   {POLLNVAL, "NVAL"}};
    char *end = text;
    *end = 0;
    for (size_t index = 0; index < sizeof names / sizeof *names; index++)
        if (events & names[index].bit)
            end += sprintf(end, "%s%s", end == text ? "" : "|", names[index].name);
    return events == 0 ? "none" : text;
}

/* What poll tells at once of a descriptor. */
static inline void say_events(const char *what, int fd) {
    struct pollfd wanted = {.fd = fd, .events = POLLIN | POLLOUT | POLLRDHUP | POLLPRI};
    int count = poll(&wanted, 1, 0);
    printf("%s: poll %d %s\n", what, count, bits((unsigned short)wanted.revents));
    fflush(stdout);
}

static inline int option_of(int fd, int level, int name) {
    int value = -12345;
    socklen_t length = sizeof value;
    if (getsockopt(fd, level, name, &value, &length) == -1)
        return -errno;
    return value;
}

