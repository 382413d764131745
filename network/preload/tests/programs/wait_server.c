/* An echo server with one set and many clients. */
#include "wait.h"

enum { CLIENTS = 40, ROUNDS = 50 };

static void serve(int listener)
{
    static char bytes[8192];
    int set = epoll_create1(0), open_count = 0, closed = 0;
    long total = 0;
    set_nonblocking(listener);
    CHECK(control(set, EPOLL_CTL_ADD, listener, EPOLLIN, listener) == 0);
    while (closed < CLIENTS) {
        struct epoll_event events[8];
        int count = epoll_wait(set, events, 8, -1);
        CHECK(count > 0);
        for (int place = 0; place < count; place++) {
            int fd = events[place].data.u64;
            if (fd == listener) {
                int accepted;
                while ((accepted = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
                    CHECK(control(set, EPOLL_CTL_ADD, accepted, EPOLLIN | EPOLLRDHUP | EPOLLET, accepted) == 0);
                    open_count++;
                }
                continue;
            }
            ssize_t got;
            while ((got = read(fd, bytes, sizeof bytes)) > 0) {
                total += got;
                send_all(fd, bytes, got);
            }
            if (got == 0) {
                close(fd);
                closed++;
            }
        }
    }
    printf("clients %d bytes %ld\n", open_count, total);
}

static struct sockaddr_in address;

static void *ask(void *argument)
{
    char sent[700], got[700];
    long number = (long)argument;
    int fd = connect_to(&address);
    for (int round = 0; round < ROUNDS; round++) {
        memset(sent, (int)(number + round), sizeof sent);
        send_all(fd, sent, sizeof sent);
        struct pollfd member = {fd, POLLIN, 0};
        if (number % 2)
            CHECK(poll(&member, 1, -1) == 1);
        CHECK(recv(fd, got, sizeof got, MSG_WAITALL) == sizeof got);
        CHECK(memcmp(sent, got, sizeof got) == 0);
    }
    close(fd);
    return NULL;
}

int main(void)
{
    pthread_t threads[CLIENTS];
    int listener = listen_at(&address);
    pid_t child = start(serve, listener);
    close(listener);
    for (long number = 0; number < CLIENTS; number++)
        CHECK(pthread_create(&threads[number], NULL, ask, (void *)number) == 0);
    for (int number = 0; number < CLIENTS; number++)
        pthread_join(threads[number], NULL);
    finish(child);
    return 0;
}
