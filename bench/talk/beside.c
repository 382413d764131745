/* One small flow, there and back, beside large flows one way that a single thread drives in turn. */
#include "talk.h"

enum { SMALL = 64, PIECE = 65536, LARGE_MAX = 64, TIMES_MAX = 1 << 22 };

static int flows[LARGE_MAX], flows_count;
static _Atomic int goes_on = 1;
static _Atomic uint64_t moved;

/* Takes what comes of all large flows, until all have ended. */
static void *drain(void *unused) {
    static char bytes[PIECE];
    int set = make_set(EPOLL, flows, flows_count), left = flows_count;
    while (left) {
        struct epoll_event events[LARGE_MAX];
        int count = epoll_wait(set, events, LARGE_MAX, -1);
        for (int i = 0; i < count; i++) {
            ssize_t got = recv(events[i].data.fd, bytes, sizeof bytes, MSG_DONTWAIT);
            if (got > 0 || (got < 0 && errno == EAGAIN)) continue;
            epoll_ctl(set, EPOLL_CTL_DEL, events[i].data.fd, NULL);
            close(events[i].data.fd);
            left--;
        }
    }
    close(set);
    return unused;
}

void beside_serve(const char *kind) {
    int listener = listen_on(kind);
    for (;;) {
        int small = accept_from(listener, kind);
        uint64_t large;
        if (receive_all(small, BLOCKING, -1, &large, sizeof large) < sizeof large) die("cut short");
        flows_count = (int)large;
        for (int i = 0; i < flows_count; i++) flows[i] = accept_from(listener, kind);
        if (flows_count) start(drain, NULL);
        char bytes[SMALL];
        send_all(small, BLOCKING, -1, "", 1);
        while (receive_all(small, BLOCKING, -1, bytes, SMALL) == SMALL) send_all(small, BLOCKING, -1, bytes, SMALL);
        close(small);
    }
}

/* Fills all large flows: whoever has room gets the next piece. */
static void *fill(void *unused) {
    static char bytes[PIECE];
    int set = epoll_create1(EPOLL_CLOEXEC);
    for (int i = 0; i < flows_count; i++) {
        struct epoll_event event = {.events = EPOLLOUT, .data.fd = flows[i]};
        if (epoll_ctl(set, EPOLL_CTL_ADD, flows[i], &event)) die("epoll_ctl");
    }
    while (atomic_load_explicit(&goes_on, memory_order_relaxed)) {
        struct epoll_event events[LARGE_MAX];
        int count = epoll_wait(set, events, LARGE_MAX, -1);
        for (int i = 0; i < count; i++) {
            ssize_t sent = send(events[i].data.fd, bytes, sizeof bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
            if (sent < 0 && errno != EAGAIN) die("send");
            if (sent > 0) atomic_fetch_add_explicit(&moved, (uint64_t)sent, memory_order_relaxed);
        }
    }
    return unused;
}

void beside_ask(const char *kind, int large, int milliseconds) {
    int small = connect_to(kind);
    uint64_t announced = (uint64_t)large;
    char bytes[SMALL] = {0};
    flows_count = large;
    send_all(small, BLOCKING, -1, &announced, sizeof announced);
    for (int i = 0; i < large; i++) flows[i] = connect_to(kind);
    receive_all(small, BLOCKING, -1, bytes, 1);
    pthread_t filler = {0};
    if (large) filler = start(fill, NULL);
    uint64_t *times = malloc(TIMES_MAX * sizeof *times), moved_before = 0, now = nanoseconds(), began = 0;
    uint64_t warm_until = now + (uint64_t)milliseconds * 100000, until = now + (uint64_t)milliseconds * 1100000;
    size_t count = 0, all = 0;
    for (; now < until && count < TIMES_MAX; all++) {
        if (!began && now >= warm_until) {
            began = now;
            moved_before = atomic_load(&moved);
        }
        send_all(small, BLOCKING, -1, bytes, SMALL);
        if (receive_all(small, BLOCKING, -1, bytes, SMALL) != SMALL) die("cut short");
        uint64_t then = nanoseconds();
        if (began) times[count++] = then - now;
        now = then;
    }
    double elapsed_ns = (double)(now - began);
    uint64_t moved_beside = atomic_load(&moved) - moved_before;
    atomic_store(&goes_on, 0);
    if (large) pthread_join(filler, NULL);
    char more[64];
    snprintf(more, sizeof more, ", \"large_bytes_a_second\": %.0f", (double)moved_beside * 1e9 / elapsed_ns);
    print_trips(times, count, elapsed_ns, 2 * SMALL * all + moved_beside, more);
}
