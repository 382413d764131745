/* As meets.c, by a copy of the connecting side's number. */
#include "fixture.h"

static struct sockaddr_in address;
static int fd;

static void *connecting(void *unused)
{
    CHECK(connect(fd, (struct sockaddr *)&address, sizeof address) == 0);
    return unused;
}

int main(void)
{
    int listener = listen_at(&address);
    for (int round = 0; round < 300; round++) {
        pthread_t thread;
        char byte = 0;
        fd = socket(AF_INET, SOCK_STREAM, 0);
        int copy = dup(fd);
        CHECK(copy >= 0);
        CHECK(pthread_create(&thread, NULL, connecting, NULL) == 0);
        int accepted = accept(listener, NULL, NULL);
        CHECK(accepted >= 0);
        CHECK(write(accepted, "x", 1) == 1);
        CHECK(recv(copy, &byte, 1, 0) == 1 && byte == 'x');
        close(accepted);
        CHECK(recv(copy, &byte, 1, 0) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
        close(copy);
        close(fd);
    }
    puts("each was connected");
    return 0;
}
