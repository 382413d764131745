/* A server that echoes and a client that checks, in two processes. */
#include "fixture.h"

static void serve(int listener)
{
    int fd = accept(listener, NULL, NULL);
    char bytes[4096];
    ssize_t got;
    while ((got = read(fd, bytes, sizeof bytes)) > 0)
        send_all(fd, bytes, got);
    printf("server: read %zd\n", got);
    close(fd);
}

int main(void)
{
    struct sockaddr_in address;
    int listener = listen_at(&address);
    pid_t child = start(serve, listener);
    int fd = connect_to(&address);
    char sent[64], got[64];
    for (int round = 0; round < 1000; round++) {
        memset(sent, 'a' + round % 26, sizeof sent);
        send_all(fd, sent, sizeof sent);
        if (recv(fd, got, sizeof got, MSG_WAITALL) != sizeof got || memcmp(sent, got, sizeof got))
            printf("round %d differs\n", round);
    }
    printf("shutdown %d\n", shutdown(fd, SHUT_WR));
    printf("client: read %zd\n", read(fd, got, sizeof got));
    close(fd);
    finish(child);
    return 0;
}
