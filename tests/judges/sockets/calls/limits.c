/* When descriptors run out. */
#include "calls.h"
#include <sys/resource.h>

static void limits(void) {
    title("limits");
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    int listener = listening(64), fds[64], count = 0;
    uint16_t port = port_of(listener);
    limit.rlim_cur = 40;
    MUST(setrlimit(RLIMIT_NOFILE, &limit));
    while (count < 64 && (fds[count] = socket(AF_INET, SOCK_STREAM, 0)) >= 0)
        count++;
    printf("%s\n", strerrorname_np(errno));
    struct sockaddr_in address = loopback(port);
    SAY(connect(fds[0], (struct sockaddr *)&address, sizeof address));
    SAY(accept(listener, NULL, NULL));
    close(fds[--count]);
    int taken = SAY_OK(accept(listener, NULL, NULL));
    SAY(dup(taken));
    SAY(send(fds[0], "x", 1, 0));
    char byte;
    SAY(recv(taken, &byte, 1, 0));
    while (count > 0)
        close(fds[--count]);
    close(taken);
    close(listener);
}

int main(void) {
    limits();
    return 0;
}
