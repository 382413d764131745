/* Functions that all programs share. */
#ifndef BED_H
#define BED_H
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            printf("%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, strerror(errno)); \
            fflush(stdout); \
            _exit(1); \
        } \
    } while (0)

/* Prints a result and, after a failure, the error. */
static inline void tell(const char *what, long result)
{
    int error = errno;
    if (result < 0)
        printf("%s: %s\n", what, strerrorname_np(error));
    else
        printf("%s: %ld\n", what, result);
    fflush(stdout);
}

static inline int listen_at(struct sockaddr_in *address)
{
    socklen_t size = sizeof *address;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0);
    memset(address, 0, sizeof *address);
    address->sin_family = AF_INET;
    address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(bind(fd, (struct sockaddr *)address, sizeof *address) == 0);
    CHECK(listen(fd, 128) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)address, &size) == 0);
    return fd;
}

static inline int connect_to(const struct sockaddr_in *address)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0);
    CHECK(connect(fd, (const struct sockaddr *)address, sizeof *address) == 0);
    return fd;
}

/* The two ends of a connection. */
static inline void join(int ends[2])
{
    struct sockaddr_in address;
    int listener = listen_at(&address);
    ends[0] = connect_to(&address);
    ends[1] = accept(listener, NULL, NULL);
    CHECK(ends[1] >= 0);
    close(listener);
}

static inline void send_all(int fd, const void *bytes, size_t size)
{
    const char *rest = bytes;
    while (size > 0) {
        ssize_t sent = write(fd, rest, size);
        CHECK(sent > 0);
        rest += sent;
        size -= sent;
    }
}

/* Waits until `count` bytes have arrived: a forwarder moves the bytes of a call a moment later. */
static inline void await(int fd, int count)
{
    int there = 0;
    while (there < count)
        CHECK(ioctl(fd, FIONREAD, &there) == 0);
}

#ifdef __x86_64__
/* A raw system call, past every library. */
static inline long past(long number, long a, long b, long c, long d, long e, long f)
{
    long result;
    register long fourth __asm__("r10") = d, fifth __asm__("r8") = e, sixth __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth), "r"(fifth), "r"(sixth)
                     : "rcx", "r11", "memory");
    if (result >= 0)
        return result;
    errno = (int)-result;
    return -1;
}
#else
#define past syscall
#endif

/* Runs a function in a child process. */
static inline pid_t start(void (*work)(int), int fd)
{
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        work(fd);
        fflush(stdout);
        _exit(0);
    }
    return child;
}

static inline void finish(pid_t child)
{
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    printf("child: %d\n", status);
    fflush(stdout);
}
#endif
