/* Copies of descriptors, flags, ioctl, and what a socket is for calls of files. */
#include "calls.h"
#include <linux/close_range.h>
#include <sys/file.h>

static void copies(void) {
    title("copies");
    struct ends ends = connected();
    char got[16];
    int one = SAY_OK(dup(ends.a));
    int two = SAY_OK(fcntl(ends.a, F_DUPFD, 300));
    int three = SAY_OK(fcntl(ends.a, F_DUPFD_CLOEXEC, 400));
    SAY(dup2(ends.a, 350));
    SAY(dup3(ends.a, 351, O_CLOEXEC));
    SAY(dup2(ends.a, ends.a) == ends.a);
    SAY(dup3(ends.a, ends.a, 0));
    SAY(dup3(ends.a, 352, 99));
    SAY(dup2(1 << 18, 352));
    SAY(dup2(ends.a, -1));
    printf("%d %d flags %d %d %d\n", two, three, fcntl(two, F_GETFD), fcntl(three, F_GETFD), fcntl(351, F_GETFD));
    int all[] = {one, two, three, 350, 351};
    for (int index = 0; index < 5; index++)
        SAY(send(all[index], "x", 1, 0));
    await_bytes(ends.b, 5);
    SAY(recv(ends.b, got, 16, 0));
    nonblocking(one);
    printf("one wish for all: %x\n", fcntl(350, F_GETFL) & O_NONBLOCK);
    SAY(recv(two, got, 1, 0));
    blocking(three);
    SAY(close(ends.a));
    for (int index = 0; index < 4; index++)
        SAY(close(all[index]));
    SAY(send(351, "still", 5, 0));
    SAY(recv(ends.b, got, 16, 0));
    SAY(send(ends.b, "there", 5, 0));
    SAY(recv(351, got, 16, 0));
    say_events("b", ends.b);
    SAY(close(351));
    await(ends.b, POLLRDHUP);
    SAY(recv(ends.b, got, 16, 0));
    close(ends.b);
}

static void replaced(void) {
    title("replaced");
    struct ends first = connected(), second = connected();
    char got[16];
    /* A copy over a socket closes it. */
    SAY(dup2(second.a, first.a) == first.a);
    await(first.b, POLLRDHUP);
    SAY(recv(first.b, got, 16, 0));
    SAY(send(first.a, "x", 1, 0));
    SAY(recv(second.b, got, 16, 0));
    int pipes[2];
    MUST(pipe(pipes));
    SAY(dup2(pipes[0], first.a) == first.a);
    SAY(send(first.a, "x", 1, MSG_NOSIGNAL));
    SAY(write(pipes[1], "abc", 3));
    SAY(read(first.a, got, 16));
    SAY(dup2(second.a, pipes[0]) == pipes[0]);
    SAY(write(pipes[0], "socket", 6));
    SAY(recv(second.b, got, 16, 0));
    SAY(shutdown(pipes[0], SHUT_WR));
    SAY(recv(second.b, got, 16, 0));
    close(pipes[0]);
    close(pipes[1]);
    close(first.a);
    close(first.b);
    close_both(second);
    /* The number of a closed socket is free for anything. */
    first = connected();
    close(first.a);
    int file = open("/dev/null", O_RDWR);
    printf("same number %d\n", file == first.a);
    SAY(write(file, "x", 1));
    SAY(send(file, "x", 1, 0));
    close(file);
    close(first.b);
}

static void ranges(void) {
    title("close_range");
    struct ends ends = connected();
    char got[16];
    MUST(dup2(ends.a, 500));
    MUST(dup2(ends.a, 501));
    close(ends.a);
    SAY(close_range(500, 500, 0));
    say_events("b", ends.b);
    SAY(close_range(501, 600, CLOSE_RANGE_CLOEXEC));
    printf("%d\n", fcntl(501, F_GETFD));
    SAY(close_range(501, ~0u, 0));
    await(ends.b, POLLRDHUP);
    SAY(recv(ends.b, got, 16, 0));
    SAY(close_range(5, 4, 0));
    close(ends.b);
    /* All is as before for new connections. */
    ends = connected();
    SAY(send(ends.a, "x", 1, 0));
    SAY(recv(ends.b, got, 16, 0));
    close_both(ends);
    closefrom(700);
    ends = connected();
    SAY(send(ends.a, "x", 1, 0));
    SAY(recv(ends.b, got, 16, 0));
    close_both(ends);
}

static void controls(void) {
    title("ioctl and fcntl");
    struct ends ends = connected();
    int value = 1;
    char got[16];
    SAY(ioctl(ends.a, FIONREAD, &value));
    printf("%d\n", value);
    send(ends.b, "12345", 5, 0);
    await_bytes(ends.a, 5);
    SAY(ioctl(ends.a, FIONREAD, &value));
    printf("%d\n", value);
    recv(ends.a, got, 2, 0);
    SAY(ioctl(ends.a, FIONREAD, &value));
    printf("%d\n", value);
    recv(ends.a, got, 16, 0);
    value = 1;
    SAY(ioctl(ends.a, FIONBIO, &value));
    printf("%x\n", fcntl(ends.a, F_GETFL) & O_NONBLOCK);
    SAY(recv(ends.a, got, 16, 0));
    value = 0;
    SAY(ioctl(ends.a, FIONBIO, &value));
    printf("%x\n", fcntl(ends.a, F_GETFL) & O_NONBLOCK);
    SAY(ioctl(ends.a, FIOCLEX));
    printf("%d\n", fcntl(ends.a, F_GETFD));
    SAY(ioctl(ends.a, FIONCLEX));
    printf("%d\n", fcntl(ends.a, F_GETFD));
    SAY(fcntl(ends.a, F_SETFD, FD_CLOEXEC));
    printf("%d\n", fcntl(ends.a, F_GETFD));
    SAY(fcntl(ends.a, F_SETFL, O_NONBLOCK | O_APPEND));
    printf("%x\n", fcntl(ends.a, F_GETFL) & (O_NONBLOCK | O_ACCMODE));
    SAY(fcntl(ends.a, 9999, 0));
    SAY(ioctl(ends.a, 0x7fffffff, &value));
    int out = -1;
    SAY(ioctl(ends.b, TIOCOUTQ, &out));
    printf("nothing is under way: %d\n", out == 0);
    int mark = -1;
    SAY(ioctl(ends.b, SIOCATMARK, &mark));
    SAY(ioctl(ends.b, TCGETS, got));
    printf("tty %d\n", isatty(ends.b));
    close_both(ends);
    int listener = listening(1);
    SAY(ioctl(listener, FIONREAD, &value));
    close(listener);
}

static void as_files(void) {
    title("as files");
    struct ends ends = connected();
    struct stat told;
    char link[64] = "", path[64];
    SAY(fstat(ends.a, &told));
    printf("socket %d size %ld\n", S_ISSOCK(told.st_mode), told.st_size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", ends.a);
    printf("link %d\n", readlink(path, link, sizeof link) > 0 && strncmp(link, "socket:", 7) == 0);
    SAY(lseek(ends.a, 0, SEEK_SET));
    SAY(ftruncate(ends.a, 0));
    SAY(fsync(ends.a));
    SAY(fchmod(ends.a, 0600));
    SAY(posix_fadvise(ends.a, 0, 0, POSIX_FADV_NORMAL));
    SAY(flock(ends.a, LOCK_EX | LOCK_NB));
    SAY(read(ends.a, link, 0));
    SAY(send(ends.a, "x", 1, 0));
    SAY(recv(ends.b, link, 16, 0));
    close_both(ends);
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    copies();
    replaced();
    ranges();
    controls();
    as_files();
    return 0;
}
