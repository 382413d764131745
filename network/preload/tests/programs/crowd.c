/* Threads that block in accept on one listener. Each byte of the standard input is a command, which is answered with
 * the same byte when it is done. */
#include "fixture.h"
#include <sys/prctl.h>

#define THREADS 8

/* One connection. */
#define ONE 'o'
/* As many connections at once as there are threads: each is held until all exist. */
#define ALL 'a'
/* A child connects three times in a row, so that it may get a lease, and keeps the lease. */
#define LEND 'l'

static struct sockaddr_in address;
static pthread_barrier_t all;
static int listener;

static void *serve(void *unused)
{
    for (;;) {
        char byte = 0;
        int fd = accept(listener, NULL, NULL);
        CHECK(fd >= 0);
        CHECK(recv(fd, &byte, 1, 0) == 1);
        if (byte == ALL)
            pthread_barrier_wait(&all);
        send_all(fd, &byte, 1);
        close(fd);
    }
    return unused;
}

static void visit(int count, char byte)
{
    int ends[THREADS];
    for (int index = 0; index < count; index++) {
        ends[index] = connect_to(&address);
        send_all(ends[index], &byte, 1);
    }
    for (int index = 0; index < count; index++) {
        struct pollfd polled = {ends[index], POLLIN, 0};
        char answer = 0;
        CHECK(poll(&polled, 1, 20000) == 1);
        CHECK(recv(ends[index], &answer, 1, 0) == 1 && answer == byte);
        close(ends[index]);
    }
}

static void borrow(int told)
{
    CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
    CHECK(close(listener) == 0);
    for (int round = 0; round < 3; round++)
        visit(1, ONE);
    CHECK(write(told, "", 1) == 1);
    pause();
}

int main(void)
{
    pthread_t thread;
    char order;
    CHECK(pthread_barrier_init(&all, NULL, THREADS) == 0);
    listener = listen_at(&address);
    for (int index = 0; index < THREADS; index++)
        CHECK(pthread_create(&thread, NULL, serve, NULL) == 0);
    while (read(0, &order, 1) == 1) {
        if (order == LEND) {
            int pair[2];
            char byte;
            CHECK(pipe(pair) == 0);
            start(borrow, pair[1]);
            CHECK(read(pair[0], &byte, 1) == 1);
        } else {
            visit(order == ALL ? THREADS : 1, order);
        }
        CHECK(write(1, &order, 1) == 1);
    }
    return 0;
}
