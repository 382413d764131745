/* A payload that is really made and really used, one way: each message is a run of words that the sender computes
 * and the receiver adds up. In place: made where it is sent from and added where it arrived, by the calls that the
 * library offers beside POSIX's; else by send and recv.
 */
#include "talk.h"

#include <millrace_sockets.h>

enum { PLACES = 16 };

static uint64_t produce(uint64_t *words, size_t count, uint64_t first) {
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++) {
        words[i] = first + i;
        sum += words[i];
    }
    return sum;
}

static uint64_t add(const uint64_t *words, size_t count) {
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++) sum += words[i];
    return sum;
}

static uint64_t serve_calls(int fd, size_t size) {
    uint64_t *words = malloc(size), sum = 0;
    while (receive_all(fd, BLOCKING, -1, words, size) == size) sum += add(words, size / sizeof *words);
    free(words);
    return sum;
}

/* Every write was of whole words. */
static size_t words_of(const struct iovec *place) {
    if (place->iov_len % sizeof(uint64_t)) {
        fputs("talk: a place of broken words\n", stderr);
        exit(1);
    }
    return place->iov_len / sizeof(uint64_t);
}

static uint64_t serve_in_place(int fd) {
    uint64_t sum = 0;
    for (;;) {
        struct iovec places[PLACES];
        ssize_t got = millrace_borrow(fd, places, PLACES, 0);
        if (got < 0) die("millrace_borrow");
        if (got == 0) return sum;
        for (size_t left = (size_t)got, i = 0; left; left -= places[i++].iov_len)
            sum += add(places[i].iov_base, words_of(&places[i]));
        if (millrace_consume(fd, (size_t)got) != got) die("millrace_consume");
    }
}

void sums_serve(const char *kind, size_t size, int is_in_place) {
    int listener = listen_on(kind);
    for (;;) {
        int fd = accept_from(listener, kind);
        uint64_t sum = is_in_place ? serve_in_place(fd) : serve_calls(fd, size);
        send_all(fd, BLOCKING, -1, &sum, sizeof sum);
        close(fd);
    }
}

static uint64_t ask_in_place(int fd, size_t size, uint64_t first) {
    uint64_t sum = 0;
    while (size) {
        struct iovec places[PLACES];
        ssize_t room = millrace_reserve(fd, places, PLACES, size, 0);
        if (room < 0) die("millrace_reserve");
        for (size_t left = (size_t)room, i = 0; left; left -= places[i++].iov_len) {
            size_t count = words_of(&places[i]);
            sum += produce(places[i].iov_base, count, first);
            first += count;
        }
        if (millrace_commit(fd, (size_t)room) != room) die("millrace_commit");
        size -= (size_t)room;
    }
    return sum;
}

void sums_ask(const char *kind, size_t size, int is_in_place, size_t count) {
    int fd = connect_to(kind);
    uint64_t *words = malloc(size), sum = 0, told, began = nanoseconds();
    for (size_t i = 0; i < count; i++) {
        uint64_t first = i * (size / sizeof *words);
        if (is_in_place) {
            sum += ask_in_place(fd, size, first);
        } else {
            sum += produce(words, size / sizeof *words, first);
            send_all(fd, BLOCKING, -1, words, size);
        }
    }
    if (shutdown(fd, SHUT_WR)) die("shutdown");
    if (receive_all(fd, BLOCKING, -1, &told, sizeof told) != sizeof told) die("cut short");
    if (told != sum) die("another sum came back");
    print_flood(nanoseconds() - began, size, count);
}
