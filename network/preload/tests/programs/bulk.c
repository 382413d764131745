/* Bulk transfers in both directions at once, on several connections and threads, with checksums. */
#include "fixture.h"

enum { CONNECTIONS = 4, BYTES = 8 << 20 };

struct flow {
    int fd;
    uint64_t seed, sum;
};

static uint64_t next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static void *sender(void *argument)
{
    struct flow *flow = argument;
    static __thread unsigned char bytes[100000];
    uint64_t state = flow->seed;
    size_t left = BYTES;
    while (left > 0) {
        size_t size = 1 + next(&state) % sizeof bytes;
        if (size > left)
            size = left;
        for (size_t byte = 0; byte < size; byte++) {
            bytes[byte] = next(&state);
            flow->sum = flow->sum * 31 + bytes[byte];
        }
        if (size % 2) {
            send_all(flow->fd, bytes, size);
        } else {
            size_t done = 0;
            while (done < size) {
                struct iovec pieces[3] = {
                    {bytes + done, (size - done) / 3},
                    {bytes + done + (size - done) / 3, 0},
                    {bytes + done + (size - done) / 3, size - done - (size - done) / 3},
                };
                ssize_t sent = writev(flow->fd, pieces, 3);
                CHECK(sent > 0);
                done += sent;
            }
        }
        left -= size;
    }
    CHECK(shutdown(flow->fd, SHUT_WR) == 0);
    return NULL;
}

static void *receiver(void *argument)
{
    struct flow *flow = argument;
    static __thread unsigned char bytes[70000];
    uint64_t state = flow->seed;
    size_t total = 0;
    ssize_t got;
    while ((got = recv(flow->fd, bytes, 1 + next(&state) % sizeof bytes, 0)) > 0) {
        for (ssize_t byte = 0; byte < got; byte++)
            flow->sum = flow->sum * 31 + bytes[byte];
        total += got;
    }
    CHECK(got == 0);
    CHECK(total == BYTES);
    return NULL;
}

int main(void)
{
    static struct flow flows[CONNECTIONS][4];
    pthread_t threads[CONNECTIONS][4];
    for (int number = 0; number < CONNECTIONS; number++) {
        int ends[2];
        join(ends);
        for (int part = 0; part < 4; part++) {
            flows[number][part] = (struct flow){ends[part % 2], 88172645463325252u + number * 4 + part, 0};
            CHECK(pthread_create(&threads[number][part], NULL, part < 2 ? sender : receiver,
                                 &flows[number][part]) == 0);
        }
    }
    for (int number = 0; number < CONNECTIONS; number++) {
        for (int part = 0; part < 4; part++)
            CHECK(pthread_join(threads[number][part], NULL) == 0);
        printf("%d: %d %d\n", number, flows[number][0].sum == flows[number][3].sum,
               flows[number][1].sum == flows[number][2].sum);
    }
    return 0;
}
