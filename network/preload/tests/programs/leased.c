/* Connections one after another and at the same time, from threads and from a child: each has its own address. */
#include "fixture.h"

#define COUNT 600

static struct sockaddr_in address;

static void *serve(void *listener)
{
    for (int index = 0; index < 3 * COUNT; index++) {
        struct sockaddr_in peer;
        socklen_t size = sizeof peer;
        int fd = accept(*(int *)listener, (struct sockaddr *)&peer, &size);
        CHECK(fd >= 0);
        send_all(fd, &peer.sin_port, sizeof peer.sin_port);
        close(fd);
    }
    return listener;
}

static void ask(int unused)
{
    (void)unused;
    for (int index = 0; index < COUNT; index++) {
        struct sockaddr_in own;
        socklen_t size = sizeof own;
        in_port_t port = 0;
        int fd = connect_to(&address);
        CHECK(getsockname(fd, (struct sockaddr *)&own, &size) == 0);
        CHECK(recv(fd, &port, sizeof port, MSG_WAITALL) == sizeof port);
        CHECK(port == own.sin_port && ntohs(port) >= 1024);
        CHECK(own.sin_addr.s_addr == htonl(INADDR_LOOPBACK));
        close(fd);
    }
}

static void *ask_too(void *unused)
{
    ask(0);
    return unused;
}

int main(void)
{
    pthread_t server, client;
    int listener = listen_at(&address);
    CHECK(pthread_create(&server, NULL, serve, &listener) == 0);
    CHECK(pthread_create(&client, NULL, ask_too, NULL) == 0);
    ask(0);
    CHECK(pthread_join(client, NULL) == 0);
    finish(start(ask, 0));
    CHECK(pthread_join(server, NULL) == 0);
    /* All at once: no address occurs twice. */
    static int ends[100];
    static unsigned char seen[65536];
    listener = listen_at(&address);
    for (int index = 0; index < 100; index++) {
        struct sockaddr_in own;
        socklen_t size = sizeof own;
        ends[index] = connect_to(&address);
        CHECK(getsockname(ends[index], (struct sockaddr *)&own, &size) == 0);
        CHECK(!seen[own.sin_port]++);
    }
    close(listener);
    tell("after the listener", connect(socket(AF_INET, SOCK_STREAM, 0), (struct sockaddr *)&address, sizeof address));
    return 0;
}
