/* Copies of numbers that other threads close: a copy is of the same connection, or fails. */
#include "fixture.h"

enum { ROUNDS = 10000 };
static struct sockaddr_in address;
static int listener;
static volatile int number = -1;
static pthread_barrier_t barrier;

/* Each connection carries its index as the first byte, which both ends know. */
static void *copy(void *result)
{
    long *wrong = result;
    for (int round = 0; round < ROUNDS; round++) {
        pthread_barrier_wait(&barrier);
        int fd = dup(number);
        if (fd >= 0) {
            char byte = 0;
            ssize_t got = recv(fd, &byte, 1, MSG_DONTWAIT);
            *wrong += got != 1 || byte != (char)round;
            close(fd);
        } else
            *wrong += errno != EBADF;
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

int main(void)
{
    pthread_t thread;
    long wrong = 0;
    pthread_barrier_init(&barrier, NULL, 2);
    listener = listen_at(&address);
    pthread_create(&thread, NULL, copy, &wrong);
    for (int round = 0; round < ROUNDS; round++) {
        char byte = (char)round;
        int near = connect_to(&address), far = accept(listener, NULL, NULL);
        CHECK(far >= 0);
        send_all(near, &byte, 1);
        number = far;
        pthread_barrier_wait(&barrier);
        for (volatile int turn = 0; turn < round % 256 * 4; turn++)
            ;
        close(far);
        pthread_barrier_wait(&barrier);
        close(near);
    }
    pthread_join(thread, NULL);
    printf("wrong %ld\n", wrong);
    return 0;
}
