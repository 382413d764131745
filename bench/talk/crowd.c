/* Many pairs of blocking threads, one connection each, for a time: there and back, or one way. */
#include "talk.h"

enum { TIMES_MAX = 1 << 20 };

struct pair {
    int fd;
    size_t size;
    int is_flood;
    uint64_t *times;
    size_t count, turns;
    pthread_t thread;
};

static _Atomic int goes_on = 1;

static void *answer(void *given) {
    struct pair *pair = given;
    char *bytes = malloc(65536);
    uint64_t taken = 0;
    if (pair->is_flood) {
        ssize_t got;
        while ((got = recv(pair->fd, bytes, 65536, 0)) > 0) taken += (uint64_t)got;
        send_all(pair->fd, BLOCKING, -1, &taken, sizeof taken);
    } else {
        while (receive_all(pair->fd, BLOCKING, -1, bytes, pair->size) == pair->size)
            send_all(pair->fd, BLOCKING, -1, bytes, pair->size);
    }
    close(pair->fd);
    free(bytes);
    free(pair);
    return NULL;
}

void crowd_serve(const char *kind, size_t size, int is_flood) {
    int listener = listen_on(kind);
    for (;;) {
        struct pair *pair = calloc(1, sizeof *pair);
        *pair = (struct pair){.fd = accept_from(listener, kind), .size = size, .is_flood = is_flood};
        pthread_detach(start(answer, pair));
    }
}

static void *ask(void *given) {
    struct pair *pair = given;
    char *bytes = calloc(1, pair->size);
    while (atomic_load_explicit(&goes_on, memory_order_relaxed)) {
        uint64_t began = nanoseconds();
        send_all(pair->fd, BLOCKING, -1, bytes, pair->size);
        if (!pair->is_flood) {
            if (receive_all(pair->fd, BLOCKING, -1, bytes, pair->size) != pair->size) die("cut short");
            pair->times[pair->count++ % TIMES_MAX] = nanoseconds() - began;
        }
        pair->turns++;
    }
    if (pair->is_flood) {
        /* The stream counts when all of it was taken. */
        uint64_t taken;
        if (shutdown(pair->fd, SHUT_WR)) die("shutdown");
        if (receive_all(pair->fd, BLOCKING, -1, &taken, sizeof taken) < sizeof taken) die("cut short");
        if (taken != (uint64_t)pair->turns * pair->size) die("not all came");
    }
    return NULL;
}

void crowd_ask(const char *kind, size_t size, int is_flood, int count, int milliseconds) {
    struct pair *pairs = calloc((size_t)count, sizeof *pairs);
    for (int i = 0; i < count; i++) {
        pairs[i] = (struct pair){.fd = connect_to(kind), .size = size, .is_flood = is_flood};
        if (!is_flood) pairs[i].times = malloc(TIMES_MAX * sizeof *pairs[i].times);
    }
    uint64_t began = nanoseconds();
    for (int i = 0; i < count; i++) pairs[i].thread = start(ask, &pairs[i]);
    struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
    nanosleep(&time, NULL);
    atomic_store(&goes_on, 0);
    size_t turns = 0, least = SIZE_MAX;
    for (int i = 0; i < count; i++) {
        pthread_join(pairs[i].thread, NULL);
        turns += pairs[i].turns;
        if (pairs[i].turns < least) least = pairs[i].turns;
    }
    double elapsed_ns = (double)(nanoseconds() - began);
    if (is_flood) {
        printf("{\"messages_a_second\": %.0f, \"least_of_mean\": %.3f, \"bytes\": %lu}\n",
               (double)turns * 1e9 / elapsed_ns, (double)least * count / (double)turns, (uint64_t)size * turns);
        return;
    }
    uint64_t *times = malloc(turns * sizeof *times);
    size_t kept = 0;
    for (int i = 0; i < count; i++) {
        size_t own = pairs[i].count < TIMES_MAX ? pairs[i].count : TIMES_MAX;
        memcpy(times + kept, pairs[i].times, own * sizeof *times);
        kept += own;
    }
    print_trips(times, kept, elapsed_ns * (double)kept / (double)turns, 2 * size * turns, "");
}
