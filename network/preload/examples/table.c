/*
 * A table is made by one process and added up by another. Under `millrace sockets run` no byte is copied; otherwise the
 * same program uses the kernel's TCP.
 *
 *     cc -O2 -I network/preload/include network/preload/examples/table.c -o table
 *     ./table
 *     millrace sockets run -- ./table
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <millrace_sockets.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROWS = 1 << 20, PLACES = 8 };

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static uint64_t row(uint64_t number)
{
    return number * 0x9e3779b97f4a7c15u;
}

/* Room for bytes: where the peer reads them, or else in a buffer. Returns how many there are, in whole rows. */
static size_t begin(int fd, char *buffer, size_t size, struct iovec *places)
{
    memset(places, 0, PLACES * sizeof *places);
    ssize_t room = millrace_reserve(fd, places, PLACES, size, 0);
    if (room < 0 && errno == EOPNOTSUPP) {
        places[0] = (struct iovec){buffer, size};
        return size;
    }
    if (room < 0)
        fail("reserve");
    /* Places have a multiple of eight bytes, but for the last, if the size is none. */
    return room;
}

static void end(int fd, const struct iovec *places, size_t size)
{
    if (millrace_commit(fd, size) >= 0)
        return;
    if (errno != EOPNOTSUPP)
        fail("commit");
    const char *rest = places[0].iov_base;
    while (size > 0) {
        ssize_t sent = send(fd, rest, size, MSG_NOSIGNAL);
        if (sent < 0)
            fail("send");
        rest += sent;
        size -= sent;
    }
}

static void produce(int fd)
{
    static char buffer[65536];
    struct iovec places[PLACES];
    uint64_t next = 0;
    while (next < ROWS) {
        size_t wanted = (ROWS - next) * 8;
        size_t size = begin(fd, buffer, wanted < sizeof buffer ? wanted : sizeof buffer, places);
        for (int place = 0; place < PLACES; place++) {
            uint64_t *rows = (uint64_t *)places[place].iov_base;
            for (size_t index = 0; index < places[place].iov_len / 8; index++)
                rows[index] = row(next++);
        }
        end(fd, places, size);
    }
    close(fd);
}

/* Rows may be cut anywhere: a row's bytes are gathered. */
struct sum {
    uint64_t total, bytes;
    unsigned char begun[8];
};

static void add(struct sum *sum, const char *bytes, size_t size)
{
    while (size > 0) {
        size_t filled = sum->bytes % 8;
        uint64_t value;
        if (filled == 0 && size >= 8) {
            /* A copy, as the peer could change what is there. */
            memcpy(&value, bytes, 8);
            sum->total += value;
            sum->bytes += 8;
            bytes += 8;
            size -= 8;
            continue;
        }
        sum->begun[filled] = *bytes++;
        size--;
        if (++sum->bytes % 8 == 0) {
            memcpy(&value, sum->begun, 8);
            sum->total += value;
        }
    }
}

static uint64_t consume(int fd)
{
    static char buffer[65536];
    struct sum sum = {0};
    for (;;) {
        struct iovec places[PLACES] = {{0}};
        ssize_t got = millrace_borrow(fd, places, PLACES, 0);
        int is_copied = got < 0 && errno == EOPNOTSUPP;
        if (is_copied) {
            got = recv(fd, buffer, sizeof buffer, 0);
            places[0] = (struct iovec){buffer, got > 0 ? (size_t)got : 0};
        }
        if (got < 0)
            fail("receive");
        if (got == 0)
            break;
        for (int place = 0; place < PLACES; place++)
            add(&sum, (const char *)places[place].iov_base, places[place].iov_len);
        if (!is_copied && millrace_consume(fd, got) != got)
            fail("consume");
    }
    return sum.bytes == ROWS * 8 ? sum.total : 0;
}

int main(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, size) < 0 || listen(listener, 1) < 0)
        fail("listen");
    if (getsockname(listener, (struct sockaddr *)&address, &size) < 0)
        fail("getsockname");
    pid_t child = fork();
    if (child < 0)
        fail("fork");
    if (child == 0) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (fd < 0 || connect(fd, (struct sockaddr *)&address, size) < 0)
            fail("connect");
        produce(fd);
        exit(0);
    }
    int fd = accept(listener, NULL, NULL);
    if (fd < 0)
        fail("accept");
    uint64_t expected = 0;
    for (uint64_t number = 0; number < ROWS; number++)
        expected += row(number);
    int is_right = consume(fd) == expected;
    waitpid(child, NULL, 0);
    printf("%s\n", is_right ? "right" : "wrong");
    return !is_right;
}
