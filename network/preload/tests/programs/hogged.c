/* Two threads that exchange messages on a processor that a third one never yields. */
#include "fixture.h"
#include <sched.h>
#include <stdatomic.h>

enum { TRIPS = 300 };

static atomic_int is_over;

static void *compute(void *argument)
{
    (void)argument;
    while (!atomic_load_explicit(&is_over, memory_order_relaxed))
        ;
    return NULL;
}

static void *answer(void *argument)
{
    int fd = *(int *)argument;
    char bytes[64];
    while (recv(fd, bytes, sizeof bytes, 0) == sizeof bytes)
        CHECK(send(fd, bytes, sizeof bytes, 0) == sizeof bytes);
    return NULL;
}

int main(void)
{
    int ends[2];
    char bytes[64] = "trip";
    pthread_t hog, peer;
    cpu_set_t one;
    CHECK(sched_getaffinity(0, sizeof one, &one) == 0);
    for (int cpu = 0, found = 0; cpu < CPU_SETSIZE; cpu++) {
        if (found)
            CPU_CLR(cpu, &one);
        found |= CPU_ISSET(cpu, &one);
    }
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
    join(ends);
    CHECK(pthread_create(&hog, NULL, compute, NULL) == 0);
    CHECK(pthread_create(&peer, NULL, answer, &ends[1]) == 0);
    for (int trip = 0; trip < TRIPS; trip++) {
        CHECK(send(ends[0], bytes, sizeof bytes, 0) == sizeof bytes);
        CHECK(recv(ends[0], bytes, sizeof bytes, 0) == sizeof bytes);
    }
    CHECK(shutdown(ends[0], SHUT_WR) == 0);
    CHECK(pthread_join(peer, NULL) == 0);
    is_over = 1;
    CHECK(pthread_join(hog, NULL) == 0);
    tell("trips", TRIPS);
    return 0;
}
