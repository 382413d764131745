/* Every call that moves bytes. */
#include "calls.h"

static uint8_t space[1 << 16];

static void say_bytes(const char *what, const void *bytes, long count) {
    printf("%s: %ld %016lx\n", what, count, count > 0 ? digest(bytes, (size_t)count) : 0);
    fflush(stdout);
}

static void plain(void) {
    title("plain");
    struct ends ends = connected();
    int a = ends.a, b = ends.b;
    char got[64];
    SAY(send(a, "hello", 5, 0));
    await_bytes(b, 5);
    SAY(recv(b, got, 3, 0));
    SAY(recv(b, got, 64, 0));
    SAY(write(b, "hello back", 10));
    await_bytes(a, 10);
    SAY(read(a, got, 64));
    say_bytes("got", got, 10);
    SAY(send(a, NULL, 0, 0));
    SAY(send(a, "", 0, 0));
    SAY(write(a, "", 0));
    SAY(recv(b, got, 64, MSG_DONTWAIT));
    SAY(recv(b, got, 0, MSG_DONTWAIT));
    SAY(read(b, got, 0));
    SAY(send(a, "abc", 3, 0));
    SAY(send(a, "def", 3, MSG_MORE));
    SAY(send(a, "ghi", 3, MSG_DONTWAIT | MSG_NOSIGNAL));
    await_bytes(b, 9);
    SAY(recv(b, got, 4, MSG_PEEK));
    SAY(recv(b, got, 64, MSG_PEEK | MSG_DONTWAIT));
    say_bytes("peeked", got, 9);
    SAY(recv(b, got, 2, MSG_TRUNC));
    SAY(recv(b, NULL, 2, MSG_TRUNC));
    SAY(recv(b, got, 64, 0));
    say_bytes("rest", got, 5);
    SAY(recv(b, got, 64, MSG_DONTWAIT | MSG_PEEK));
    SAY(recv(b, got, 64, MSG_ERRQUEUE));
    SAY(recv(b, got, 64, MSG_OOB));
    nonblocking(b);
    SAY(read(b, got, 64));
    SAY(recv(b, got, 64, MSG_WAITALL));
    blocking(b);
    close_both(ends);
}

static void addressed(void) {
    title("with addresses");
    struct ends ends = connected();
    struct sockaddr_in address = loopback(9);
    char got[64];
    SAY(sendto(ends.a, "abc", 3, 0, (struct sockaddr *)&address, sizeof address));
    SAY(sendto(ends.a, "abc", 3, 0, (struct sockaddr *)&address, 2));
    SAY(sendto(ends.a, "abc", 3, 0, NULL, 0));
    await_bytes(ends.b, 6);
    struct sockaddr_storage from;
    memset(&from, 0xee, sizeof from);
    socklen_t length = sizeof from;
    SAY(recvfrom(ends.b, got, 2, 0, (struct sockaddr *)&from, &length));
    printf("from: length %u first byte %x\n", length, *(uint8_t *)&from);
    SAY(recvfrom(ends.b, got, 2, 0, NULL, NULL));
    struct iovec part = {got, 1};
    struct msghdr message = {.msg_name = &from, .msg_namelen = sizeof from, .msg_iov = &part, .msg_iovlen = 1,
                             .msg_control = space, .msg_controllen = 64, .msg_flags = -1};
    SAY(recvmsg(ends.b, &message, 0));
    printf("namelen %u controllen %zu flags %x\n", message.msg_namelen, message.msg_controllen, message.msg_flags);
    close_both(ends);
}

static void vectors(void) {
    title("vectors");
    struct ends ends = connected();
    int a = ends.a, b = ends.b;
    uint8_t out[3][500], in[4][400];
    for (int index = 0; index < 3; index++)
        pattern(out[index], 500, (uint64_t)index * 500);
    struct iovec parts[5] = {{out[0], 500}, {NULL, 0}, {out[1], 500}, {out[1], 0}, {out[2], 500}};
    SAY(writev(a, parts, 5));
    await_bytes(b, 1500);
    struct iovec places[4] = {{in[0], 400}, {in[1], 400}, {in[2], 400}, {in[3], 400}};
    SAY(readv(b, places, 4));
    say_bytes("in", in, 1500);
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 5};
    SAY(sendmsg(a, &message, MSG_NOSIGNAL));
    await_bytes(b, 1500);
    struct msghdr taken = {.msg_iov = places, .msg_iovlen = 2};
    SAY(recvmsg(b, &taken, MSG_PEEK));
    printf("flags %x\n", taken.msg_flags);
    SAY(recvmsg(b, &taken, MSG_WAITALL));
    say_bytes("in", in, 800);
    SAY(recvmsg(b, &taken, MSG_DONTWAIT | MSG_CMSG_CLOEXEC));
    SAY(writev(a, parts, 0));
    SAY(writev(a, parts, -1));
    SAY(writev(a, parts, 1025));
    SAY(readv(b, places, 1025));
    message.msg_iovlen = 1025;
    SAY(sendmsg(a, &message, 0));
    message.msg_iovlen = 0;
    SAY(sendmsg(a, &message, 0));
    parts[0].iov_len = (size_t)-1;
    SAY(writev(a, parts, 1));
    parts[0].iov_len = 500;
    SAY(preadv(b, places, 1, 0));
    SAY(pwritev(a, parts, 1, 0));
    SAY(preadv2(b, places, 1, 5, 0));
    SAY(pwritev2(a, parts, 1, -1, 0));
    await_bytes(b, 500);
    SAY(preadv2(b, places, 1, -1, 0));
    SAY(preadv2(b, places, 1, -1, RWF_NOWAIT));
    SAY(preadv2(b, places, 1, -1, RWF_NOWAIT));
    SAY(pread(b, in, 1, 0));
    SAY(pwrite(a, out, 1, 0));
    SAY(lseek(a, 0, SEEK_CUR));
    close_both(ends);
}

static void several(void) {
    title("several messages a call");
    struct ends ends = connected();
    char out[4][10] = {"one", "twotwo", "three", "four"}, in[4][4];
    struct iovec parts[4], places[4];
    struct mmsghdr sends[4], receives[4];
    memset(sends, 0, sizeof sends);
    memset(receives, 0, sizeof receives);
    for (int index = 0; index < 4; index++) {
        parts[index] = (struct iovec){out[index], strlen(out[index])};
        sends[index].msg_hdr = (struct msghdr){.msg_iov = &parts[index], .msg_iovlen = 1};
        places[index] = (struct iovec){in[index], 4};
        receives[index].msg_hdr = (struct msghdr){.msg_iov = &places[index], .msg_iovlen = 1};
    }
    SAY(sendmmsg(ends.a, sends, 4, 0));
    for (int index = 0; index < 4; index++)
        printf("%u\n", sends[index].msg_len);
    await_bytes(ends.b, 18);
    SAY(recvmmsg(ends.b, receives, 4, 0, NULL));
    for (int index = 0; index < 4; index++)
        printf("%u %.*s\n", receives[index].msg_len, (int)receives[index].msg_len, in[index]);
    struct timespec limit = {1, 0};
    SAY(recvmmsg(ends.b, receives, 4, MSG_DONTWAIT, &limit));
    SAY(recvmmsg(ends.b, receives, 4, MSG_DONTWAIT, NULL));
    SAY(sendmmsg(ends.a, sends, 0, 0));
    SAY(recvmmsg(ends.b, receives, 0, MSG_DONTWAIT, NULL));
    close_both(ends);
}

static void *send_later(void *argument) {
    int fd = *(int *)argument;
    for (int index = 0; index < 10; index++) {
        await_main_blocked();
        pattern(space, 100, (uint64_t)index * 100);
        send_all(fd, space, 100);
    }
    return NULL;
}

static void waiting_for_all(void) {
    title("MSG_WAITALL");
    struct ends ends = connected();
    pthread_t thread;
    uint8_t got[2000];
    pthread_create(&thread, NULL, send_later, &ends.a);
    SAY(recv(ends.b, got, 950, MSG_WAITALL));
    say_bytes("got", got, 950);
    pthread_join(thread, NULL);
    SAY(recv(ends.b, got, 50, MSG_WAITALL | MSG_PEEK));
    pthread_create(&thread, NULL, send_later, &ends.a);
    struct iovec parts[2] = {{got, 700}, {got + 700, 350}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    SAY(recvmsg(ends.b, &message, MSG_WAITALL));
    say_bytes("got", got, 1050);
    pthread_join(thread, NULL);
    send_all(ends.a, "tail", 4);
    shutdown(ends.a, SHUT_WR);
    SAY(recv(ends.b, got, 100, MSG_WAITALL));
    SAY(recv(ends.b, got, 100, MSG_WAITALL));
    close_both(ends);
}

struct flow {
    int fd;
    uint64_t total;
    unsigned seed;
    uint64_t hash;
    bool ok;
};

/* Sends by every call in turn, in pieces of all sizes. */
static void *pour(void *argument) {
    struct flow *flow = argument;
    uint8_t *bytes = malloc(300000);
    for (uint64_t done = 0; done < flow->total;) {
        size_t length = rand_r(&flow->seed) % (rand_r(&flow->seed) % 4 ? 3000 : 300000) + 1;
        if (length > flow->total - done)
            length = flow->total - done;
        pattern(bytes, length, done);
        struct iovec parts[2] = {{bytes, length / 2}, {bytes + length / 2, length - length / 2}};
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
        ssize_t sent = 0;
        switch (rand_r(&flow->seed) % 4) {
        case 0: sent = send(flow->fd, bytes, length, MSG_NOSIGNAL); break;
        case 1: sent = write(flow->fd, bytes, length); break;
        case 2: sent = writev(flow->fd, parts, 2); break;
        case 3: sent = sendmsg(flow->fd, &message, MSG_NOSIGNAL); break;
        }
        if (sent < 0) {
            printf("sending: %s\n", strerrorname_np(errno));
            break;
        }
        done += (uint64_t)sent;
    }
    shutdown(flow->fd, SHUT_WR);
    free(bytes);
    return NULL;
}

static void *drain(void *argument) {
    struct flow *flow = argument;
    uint8_t *bytes = malloc(200000), *expected = malloc(200000);
    uint64_t done = 0;
    flow->ok = true;
    for (;;) {
        size_t length = rand_r(&flow->seed) % (rand_r(&flow->seed) % 4 ? 3000 : 200000) + 1;
        struct iovec parts[2] = {{bytes, length / 2}, {bytes + length / 2, length - length / 2}};
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
        ssize_t got = 0;
        switch (rand_r(&flow->seed) % 5) {
        case 0: got = recv(flow->fd, bytes, length, 0); break;
        case 1: got = read(flow->fd, bytes, length); break;
        case 2: got = readv(flow->fd, parts, 2); break;
        case 3: got = recvmsg(flow->fd, &message, 0); break;
        case 4: got = recv(flow->fd, bytes, length, MSG_WAITALL); break;
        }
        if (got <= 0) {
            if (got < 0)
                printf("receiving: %s\n", strerrorname_np(errno));
            break;
        }
        pattern(expected, (size_t)got, done);
        flow->ok &= memcmp(expected, bytes, (size_t)got) == 0;
        done += (uint64_t)got;
    }
    flow->total = done;
    free(bytes);
    free(expected);
    return NULL;
}

static void large(void) {
    title("large, both ways at once");
    for (unsigned round = 0; round < 3; round++) {
        struct ends ends = connected();
        struct flow flows[4] = {{ends.a, 20000000, round, 0, true}, {ends.b, 0, round + 10, 0, true},
                                {ends.b, 7000001, round + 20, 0, true}, {ends.a, 0, round + 30, 0, true}};
        pthread_t threads[4];
        for (int index = 0; index < 4; index++)
            pthread_create(&threads[index], NULL, index % 2 ? drain : pour, &flows[index]);
        for (int index = 0; index < 4; index++)
            pthread_join(threads[index], NULL);
        printf("%lu %d %lu %d\n", flows[1].total, flows[1].ok, flows[3].total, flows[3].ok);
        close_both(ends);
    }
}

static void full(void) {
    title("full");
    struct ends ends = connected();
    memset(space, 'x', sizeof space);
    nonblocking(ends.a);
    uint64_t sent = 0;
    ssize_t count;
    while ((count = send(ends.a, space, sizeof space, 0)) > 0)
        sent += (uint64_t)count;
    printf("%zd %s, some were taken: %d\n", count, strerrorname_np(errno), sent > 0);
    SAY(send(ends.a, space, 100000 % sizeof space, MSG_DONTWAIT));
    SAY(send(ends.a, "", 0, 0));
    struct pollfd wanted = {.fd = ends.a, .events = POLLOUT};
    SAY(poll(&wanted, 1, 0));
    blocking(ends.a);
    SAY(send(ends.a, space, sizeof space, MSG_DONTWAIT));
    struct timeval limit = {0, 20000};
    MUST(setsockopt(ends.a, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit));
    SAY(send(ends.a, space, sizeof space, 0));
    uint64_t received = 0;
    while (received < sent)
        received += (uint64_t)MUST(recv(ends.b, space, sizeof space, 0));
    printf("all came: %d\n", received == sent);
    await(ends.a, POLLOUT);
    SAY(send(ends.a, "x", 1, MSG_DONTWAIT));
    close_both(ends);
}

static void alternating(void) {
    title("one byte to and fro");
    struct ends ends = connected();
    unsigned sum = 0;
    for (int index = 0; index < 5000; index++) {
        uint8_t byte = (uint8_t)index, got;
        MUST(send(ends.a, &byte, 1, 0));
        MUST(recv(ends.b, &got, 1, 0));
        got++;
        MUST(send(ends.b, &got, 1, 0));
        MUST(recv(ends.a, &got, 1, 0));
        sum += got;
    }
    printf("sum %u\n", sum);
    close_both(ends);
}

static void oneself(void) {
    title("streams of stdio");
    struct ends ends = connected();
    FILE *out = fdopen(ends.a, "w"), *in = fdopen(ends.b, "r");
    char line[200];
    for (int index = 0; index < 1000; index++)
        fprintf(out, "line %d\n", index);
    fclose(out);
    unsigned count = 0;
    while (fgets(line, sizeof line, in))
        count++;
    printf("lines %u last %s", count, line);
    SAY(dprintf(ends.b, "x"));
    fclose(in);
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    plain();
    addressed();
    vectors();
    several();
    waiting_for_all();
    large();
    full();
    alternating();
    oneself();
    return 0;
}
