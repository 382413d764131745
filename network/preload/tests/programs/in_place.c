/* Pseudo-random bytes, sent and received with copies and without, in turn. */
#include "fixture.h"
#include <millrace_sockets.h>

enum { BYTES = 4 << 20, PLACES = 5 };

static int ends[2];

static uint64_t next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static void fill(char *bytes, size_t size, uint64_t *content)
{
    for (size_t byte = 0; byte < size; byte++)
        bytes[byte] = next(content);
}

/* Commits the written bytes, but 0 of every eighth reservation, whose bytes are written again. */
static size_t send_in_place(uint64_t *choices, uint64_t *content, size_t size)
{
    struct iovec places[PLACES];
    int count = 1 + next(choices) % PLACES;
    ssize_t room = millrace_reserve(ends[0], places, count, size, 0);
    CHECK(room > 0 && (size_t)room <= size);
    size_t used = next(choices) % 8 == 0 ? 0 : 1 + next(choices) % room, rest = used, sum = 0;
    for (int place = 0; place < count; place++) {
        size_t part = places[place].iov_len < rest ? places[place].iov_len : rest;
        CHECK(places[place].iov_len <= MILLRACE_PLACE_MAX);
        CHECK((uintptr_t)places[place].iov_base % 8 == 0);
        sum += places[place].iov_len;
        memset(places[place].iov_base, 0xa5, places[place].iov_len);
        fill(places[place].iov_base, part, content);
        rest -= part;
    }
    CHECK(sum == (size_t)room);
    CHECK(millrace_commit(ends[0], used) == (ssize_t)used);
    return used;
}

static void *sender(void *unused)
{
    static char bytes[30000];
    uint64_t choices = 88172645463325252u, content = 1234567;
    size_t left = BYTES;
    (void)unused;
    while (left > 0) {
        size_t size = 1 + next(&choices) % (next(&choices) % 2 ? sizeof bytes : 100);
        if (size > left)
            size = left;
        if (next(&choices) % 2 && millrace_is_user_level(ends[0])) {
            left -= send_in_place(&choices, &content, size);
            continue;
        }
        fill(bytes, size, &content);
        send_all(ends[0], bytes, size);
        left -= size;
    }
    CHECK(shutdown(ends[0], SHUT_WR) == 0);
    return NULL;
}

static void check(const char *bytes, size_t size, uint64_t *content)
{
    for (size_t byte = 0; byte < size; byte++)
        CHECK(bytes[byte] == (char)next(content));
}

/* Checks all borrowed bytes, and consumes a part. */
static ssize_t receive_in_place(uint64_t *choices, uint64_t *content)
{
    struct iovec places[PLACES];
    int count = 1 + next(choices) % PLACES;
    ssize_t got = millrace_borrow(ends[1], places, count, 0), sum = 0;
    CHECK(got >= 0);
    if (got == 0)
        return 0;
    size_t used = 1 + next(choices) % got, rest = used;
    uint64_t ahead = *content;
    for (int place = 0; place < count; place++) {
        size_t part = places[place].iov_len < rest ? places[place].iov_len : rest;
        check(places[place].iov_base, places[place].iov_len, &ahead);
        check(places[place].iov_base, part, content);
        sum += places[place].iov_len;
        rest -= part;
    }
    CHECK(sum == got);
    CHECK(millrace_consume(ends[1], used) == (ssize_t)used);
    return used;
}

int main(void)
{
    static char bytes[30000];
    uint64_t choices = 362436069, content = 1234567;
    pthread_t thread;
    size_t total = 0;
    join(ends);
    CHECK(pthread_create(&thread, NULL, sender, NULL) == 0);
    for (;;) {
        ssize_t got;
        if (next(&choices) % 2 && millrace_is_user_level(ends[1])) {
            got = receive_in_place(&choices, &content);
        } else {
            size_t size = 1 + next(&choices) % sizeof bytes;
            if (next(&choices) % 4 == 0) {
                uint64_t ahead = content;
                got = recv(ends[1], bytes, size, MSG_PEEK);
                CHECK(got >= 0);
                check(bytes, got, &ahead);
            }
            got = recv(ends[1], bytes, size, 0);
            CHECK(got >= 0);
            check(bytes, got, &content);
        }
        if (got == 0)
            break;
        total += got;
    }
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(total == BYTES);
    printf("%zu bytes\n", total);
    return 0;
}
