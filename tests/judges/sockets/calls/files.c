/* sendfile, splice, tee and their kin between files, pipes and sockets. */
#include "calls.h"

#define FILE_BYTES 3000000

static int file_of_pattern(void) {
    char path[] = "/tmp/judge-XXXXXX";
    int fd = (int)MUST(mkstemp(path));
    unlink(path);
    uint8_t *bytes = malloc(FILE_BYTES);
    pattern(bytes, FILE_BYTES, 0);
    for (size_t done = 0; done < FILE_BYTES;)
        done += (size_t)MUST(write(fd, bytes + done, FILE_BYTES - done));
    free(bytes);
    MUST(lseek(fd, 0, SEEK_SET));
    return fd;
}

struct sink {
    int fd;
    uint64_t total;
    uint64_t start;
    bool same;
};

static void *drain(void *argument) {
    struct sink *sink = argument;
    static uint8_t bytes[65536], expected[65536];
    ssize_t length;
    sink->total = 0;
    sink->same = true;
    while ((length = recv(sink->fd, bytes, sizeof bytes, 0)) > 0) {
        pattern(expected, (size_t)length, sink->start + sink->total);
        sink->same &= memcmp(bytes, expected, (size_t)length) == 0;
        sink->total += (uint64_t)length;
    }
    return NULL;
}

static void sending(bool with_offset, off_t start) {
    title("sendfile, offset %d at %ld", with_offset, start);
    struct ends ends = connected();
    int file = file_of_pattern();
    struct sink sink = {.fd = ends.b, .start = (uint64_t)start};
    pthread_t thread;
    pthread_create(&thread, NULL, drain, &sink);
    off_t offset = start;
    if (!with_offset)
        MUST(lseek(file, start, SEEK_SET));
    ssize_t count;
    while ((count = sendfile(ends.a, file, with_offset ? &offset : NULL, 1000000)) > 0)
        ;
    said("sendfile", count);
    printf("offset %ld position %ld\n", offset, lseek(file, 0, SEEK_CUR));
    close(ends.a);
    pthread_join(thread, NULL);
    printf("came %lu same %d\n", sink.total, sink.same);
    close(ends.b);
    close(file);
}

static void wrong_sends(void) {
    title("sendfile, wrong uses");
    struct ends ends = connected();
    int file = file_of_pattern(), pipes[2];
    MUST(pipe(pipes));
    off_t negative = -1;
    char got[16];
    SAY(sendfile(ends.a, file, NULL, 0));
    SAY(sendfile(ends.a, file, &negative, 10));
    SAY(sendfile(ends.a, -1, NULL, 10));
    SAY(sendfile(-1, file, NULL, 10));
    SAY(sendfile(file, ends.a, NULL, 10));
    nonblocking(ends.a);
    nonblocking(pipes[0]);
    SAY(sendfile(pipes[1], ends.a, NULL, 10));
    SAY(sendfile(ends.b, pipes[0], NULL, 10));
    blocking(ends.a);
    SAY(copy_file_range(file, NULL, ends.a, NULL, 10, 0));
    MUST(lseek(file, 0, SEEK_END));
    SAY(sendfile(ends.a, file, NULL, 10));
    shutdown(ends.a, SHUT_WR);
    MUST(lseek(file, 0, SEEK_SET));
    SAY(sendfile(ends.a, file, NULL, 10));
    SAY(recv(ends.b, got, 16, 0));
    close_both(ends);
    title("sendfile into a full socket");
    ends = connected();
    nonblocking(ends.a);
    ssize_t count;
    off_t offset = 0;
    uint64_t sent = 0;
    while ((count = sendfile(ends.a, file, &offset, 500000)) > 0) {
        sent += (uint64_t)count;
        offset = (off_t)(sent % FILE_BYTES);
        if (offset > FILE_BYTES - 500000)
            offset = 0;
    }
    said("sendfile", count);
    close_both(ends);
    close(pipes[0]);
    close(pipes[1]);
    close(file);
}

static void splicing(void) {
    title("splice");
    struct ends ends = connected(), second = connected();
    int pipes[2];
    char got[64];
    MUST(pipe(pipes));
    SAY(write(pipes[1], "through a pipe", 14));
    SAY(splice(pipes[0], NULL, ends.a, NULL, 100, SPLICE_F_MOVE));
    await_bytes(ends.b, 14);
    SAY(splice(ends.b, NULL, pipes[1], NULL, 7, 0));
    SAY(splice(ends.b, NULL, pipes[1], NULL, 100, SPLICE_F_NONBLOCK));
    nonblocking(ends.b);
    SAY(splice(ends.b, NULL, pipes[1], NULL, 100, SPLICE_F_NONBLOCK));
    SAY(splice(ends.b, NULL, pipes[1], NULL, 100, 0));
    blocking(ends.b);
    SAY(splice(pipes[0], NULL, second.a, NULL, 100, SPLICE_F_MORE));
    await_bytes(second.b, 14);
    SAY(recv(second.b, got, 64, 0));
    printf("%.14s\n", got);
    SAY(splice(ends.a, NULL, ends.b, NULL, 10, 0));
    off_t offset = 0;
    SAY(splice(ends.a, &offset, pipes[1], NULL, 10, 0));
    SAY(splice(pipes[0], NULL, ends.a, &offset, 10, 0));
    nonblocking(pipes[0]);
    SAY(splice(pipes[0], NULL, ends.a, NULL, 10, SPLICE_F_NONBLOCK));
    SAY(tee(ends.a, pipes[1], 10, 0));
    struct iovec part = {got, 4};
    SAY(vmsplice(ends.a, &part, 1, 0));
    shutdown(ends.a, SHUT_WR);
    SAY(splice(ends.b, NULL, pipes[1], NULL, 10, 0));
    close_both(ends);
    close_both(second);
    close(pipes[0]);
    close(pipes[1]);
}

static void *feed(void *argument) {
    int *fds = argument;
    static uint8_t bytes[50000];
    for (uint64_t place = 0; place < FILE_BYTES; place += sizeof bytes) {
        pattern(bytes, sizeof bytes, place);
        send_all(fds[0], bytes, sizeof bytes);
    }
    shutdown(fds[0], SHUT_WR);
    return NULL;
}

/* What a proxy does: from one connection to another by way of a pipe. */
static void relaying(void) {
    title("relaying by splice");
    struct ends in = connected(), out = connected();
    int pipes[2];
    MUST(pipe(pipes));
    pthread_t feeder, drainer;
    struct sink sink = {.fd = out.b};
    pthread_create(&feeder, NULL, feed, &in.a);
    pthread_create(&drainer, NULL, drain, &sink);
    ssize_t count;
    while ((count = splice(in.b, NULL, pipes[1], NULL, 65536, SPLICE_F_MOVE)) > 0)
        while (count > 0)
            count -= MUST(splice(pipes[0], NULL, out.a, NULL, (size_t)count, SPLICE_F_MOVE));
    said("splice", count);
    shutdown(out.a, SHUT_WR);
    pthread_join(feeder, NULL);
    pthread_join(drainer, NULL);
    printf("came %lu same %d\n", sink.total, sink.same);
    close_both(in);
    close_both(out);
    close(pipes[0]);
    close(pipes[1]);
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    sending(true, 0);
    sending(true, 1234567);
    sending(false, 0);
    sending(false, 77);
    wrong_sends();
    splicing();
    relaying();
    return 0;
}
