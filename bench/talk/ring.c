#include "talk.h"

/* A ring of slots, each a counter and payload; the counter is the lap's number when the slot is full. */
struct ring {
    _Alignas(128) _Atomic uint64_t taken;
    _Alignas(128) char slots[];
};

enum { SLOTS = 64 };

static size_t stride_of(size_t size) { return (size + 8 + 63) / 64 * 64; }

static struct ring *make_ring(size_t size) {
    size_t bytes = sizeof(struct ring) + SLOTS * stride_of(size);
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED) die("mmap");
    return memory;
}

static void ring_put(struct ring *ring, uint64_t place, const char *bytes, size_t size) {
    char *slot = ring->slots + place % SLOTS * stride_of(size);
    while (place - atomic_load_explicit(&ring->taken, memory_order_acquire) >= SLOTS) __builtin_ia32_pause();
    memcpy(slot + 8, bytes, size);
    atomic_store_explicit((_Atomic uint64_t *)slot, place + 1, memory_order_release);
}

static void ring_take(struct ring *ring, uint64_t place, char *bytes, size_t size) {
    char *slot = ring->slots + place % SLOTS * stride_of(size);
    while (atomic_load_explicit((_Atomic uint64_t *)slot, memory_order_acquire) != place + 1) __builtin_ia32_pause();
    memcpy(bytes, slot + 8, size);
    if (place % (SLOTS / 2) == SLOTS / 2 - 1)
        atomic_store_explicit(&ring->taken, place + 1, memory_order_release);
}

static void pin(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set)) die("sched_setaffinity");
}

void ring(size_t size, size_t count, int is_flood, int first, int second) {
    struct ring *there = make_ring(size), *back = make_ring(size);
    char *bytes = calloc(1, size);
    size_t warm = is_flood ? 0 : count / 10;
    pid_t child = fork();
    if (child < 0) die("fork");
    if (child == 0) {
        pin(second);
        for (uint64_t i = 0; i < warm + count; i++) {
            ring_take(there, i, bytes, size);
            if (!is_flood || i == count - 1) ring_put(back, is_flood ? 0 : i, bytes, size);
        }
        _exit(0);
    }
    pin(first);
    uint64_t start = nanoseconds();
    if (is_flood) {
        for (uint64_t i = 0; i < count; i++) ring_put(there, i, bytes, size);
        ring_take(back, 0, bytes, size);
        print_flood(nanoseconds() - start, size, count);
    } else {
        uint64_t *times = calloc(count, sizeof *times), began = 0;
        for (uint64_t i = 0; i < warm + count; i++) {
            start = nanoseconds();
            if (i == warm) began = start;
            ring_put(there, i, bytes, size);
            ring_take(back, i, bytes, size);
            if (i >= warm) times[i - warm] = nanoseconds() - start;
        }
        print_trips(times, count, (double)(nanoseconds() - began), 2 * size * (warm + count), "");
    }
    waitpid(child, NULL, 0);
}

