/* sendfile and splice between connections, files and pipes. */
#include "fixture.h"

static int ends[2];
static char bytes[300000], got[300000];

static void *take(void *unused)
{
    (void)unused;
    CHECK(recv(ends[1], got, sizeof got, MSG_WAITALL) == sizeof got);
    return NULL;
}

int main(void)
{
    pthread_t thread;
    int pipes[2];
    join(ends);
    for (size_t byte = 0; byte < sizeof bytes; byte++)
        bytes[byte] = byte * 7 + byte / 251;
    FILE *file = tmpfile();
    CHECK(fwrite(bytes, 1, sizeof bytes, file) == sizeof bytes);
    CHECK(fflush(file) == 0);
    int fd = fileno(file);
    CHECK(pthread_create(&thread, NULL, take, NULL) == 0);
    off_t offset = 1000;
    size_t left = sizeof bytes - 1000;
    while (left > 0) {
        ssize_t sent = sendfile(ends[0], fd, &offset, left);
        CHECK(sent > 0);
        left -= sent;
    }
    printf("offset %ld\n", (long)offset);
    CHECK(lseek(fd, 0, SEEK_SET) == 0);
    tell("from where the file is", sendfile(ends[0], fd, NULL, 1000));
    printf("at %ld\n", (long)lseek(fd, 0, SEEK_CUR));
    CHECK(pthread_join(thread, NULL) == 0);
    printf("same %d %d\n", memcmp(got, bytes + 1000, sizeof bytes - 1000), memcmp(got + sizeof bytes - 1000, bytes, 1000));
    offset = sizeof bytes;
    tell("behind the end", sendfile(ends[0], fd, &offset, 10));
    tell("from a socket", sendfile(ends[0], ends[1], NULL, 10));

    CHECK(pipe(pipes) == 0);
    send_all(ends[0], "through a pipe", 14);
    tell("splice out", splice(ends[1], NULL, pipes[1], NULL, 100, 0));
    tell("splice in", splice(pipes[0], NULL, ends[0], NULL, 14, 0));
    tell("back", recv(ends[1], got, 100, 0));
    printf("%.14s\n", got);
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    tell("splice of nothing", splice(ends[1], NULL, pipes[1], NULL, 100, SPLICE_F_NONBLOCK));
    loff_t place = 0;
    tell("splice with an offset", splice(ends[1], &place, pipes[1], NULL, 100, 0));
    tell("splice without a pipe", splice(ends[1], NULL, ends[0], NULL, 100, 0));
    tell("copy_file_range", copy_file_range(fd, NULL, ends[0], NULL, 10, 0));
    tell("pread", pread(ends[0], got, 10, 0));
    tell("pwrite", pwrite(ends[0], got, 10, 0));
    struct iovec piece = {got, 10};
    tell("preadv", preadv(ends[0], &piece, 1, 0));
    tell("lseek", lseek(ends[0], 0, SEEK_CUR));
    return 0;
}
