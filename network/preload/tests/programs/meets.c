/* The accepting side uses the connecting side's number at once: it is connected by then. */
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
        CHECK(pthread_create(&thread, NULL, connecting, NULL) == 0);
        int accepted = accept(listener, NULL, NULL);
        CHECK(accepted >= 0);
        CHECK(write(accepted, "x", 1) == 1);
        CHECK(recv(fd, &byte, 1, 0) == 1 && byte == 'x');
        close(accepted);
        struct pollfd polled = {fd, POLLIN, 0};
        CHECK(poll(&polled, 1, 1000) == 1 && polled.revents & POLLIN);
        CHECK(recv(fd, &byte, 1, 0) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
        close(fd);
    }
    puts("each was connected");
    return 0;
}
