/* Several numbers of one connection. */
#include "fixture.h"

int main(void)
{
    int ends[2];
    char bytes[64];
    join(ends);
    int copy = dup(ends[0]);
    close(ends[0]);
    send_all(copy, "by dup", 6);
    tell("dup", recv(ends[1], bytes, sizeof bytes, 0));
    tell("closed", write(ends[0], "x", 1));
    tell("dup2", dup2(copy, 100) - 100);
    tell("dup2 to itself", dup2(100, 100) - 100);
    close(copy);
    send_all(100, "by dup2", 7);
    tell("dup2", recv(ends[1], bytes, sizeof bytes, 0));
    tell("dup3", dup3(100, 101, O_CLOEXEC) - 101);
    tell("dup3 to itself", dup3(101, 101, O_CLOEXEC));
    tell("flags", fcntl(101, F_GETFD));
    close(100);
    send_all(101, "by dup3", 7);
    tell("dup3", recv(ends[1], bytes, sizeof bytes, 0));
    copy = fcntl(101, F_DUPFD, 200);
    tell("F_DUPFD", copy - 200);
    tell("F_SETFL", fcntl(copy, F_SETFL, fcntl(copy, F_GETFL) | O_NONBLOCK));
    tell("nonblocking through the other", read(101, bytes, sizeof bytes));
    tell("F_GETFL", fcntl(101, F_GETFL) & O_NONBLOCK);
    close(101);
    send_all(ends[1], "back", 4);
    tell("back", read(copy, bytes, sizeof bytes));
    int pipes[2];
    CHECK(pipe(pipes) == 0);
    tell("replaced", dup2(pipes[0], copy) - copy);
    tell("end", recv(ends[1], bytes, sizeof bytes, 0));
    tell("close_range", close_range(ends[1], ends[1], 0));
    tell("closed", recv(ends[1], bytes, sizeof bytes, 0));
    return 0;
}
