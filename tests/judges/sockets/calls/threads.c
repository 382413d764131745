/* Several threads and several processes at one descriptor. */
#include "calls.h"
#include <stdatomic.h>
#include <sys/eventfd.h>

struct shared {
    struct ends ends;
    atomic_ulong sent, received, sum_sent, sum_received;
    int epoll, listener, stop;
    /* The threads that wait, and the pieces that the main thread has sent. */
    volatile pid_t waiters[6];
    atomic_int waiters_count, pieces;
};

static void *send_records(void *argument) {
    struct shared *shared = argument;
    for (int index = 0; index < 3000; index++) {
        uint8_t record[16];
        pattern(record, sizeof record, (uint64_t)index);
        for (size_t at = 0; at < sizeof record; at++)
            atomic_fetch_add(&shared->sum_sent, record[at]);
        send_all(shared->ends.a, record, sizeof record);
        atomic_fetch_add(&shared->sent, sizeof record);
    }
    return NULL;
}

static void *receive_some(void *argument) {
    struct shared *shared = argument;
    uint8_t bytes[100];
    ssize_t length;
    while ((length = recv(shared->ends.b, bytes, sizeof bytes, 0)) > 0) {
        for (ssize_t at = 0; at < length; at++)
            atomic_fetch_add(&shared->sum_received, bytes[at]);
        atomic_fetch_add(&shared->received, (unsigned long)length);
    }
    return NULL;
}

/* No byte is lost or comes twice, whoever takes it. */
static void many_at_one(void) {
    title("four senders and four receivers");
    struct shared shared = {.ends = connected()};
    pthread_t senders[4], receivers[4];
    for (int index = 0; index < 4; index++) {
        pthread_create(&receivers[index], NULL, receive_some, &shared);
        pthread_create(&senders[index], NULL, send_records, &shared);
    }
    for (int index = 0; index < 4; index++)
        pthread_join(senders[index], NULL);
    shutdown(shared.ends.a, SHUT_WR);
    for (int index = 0; index < 4; index++)
        pthread_join(receivers[index], NULL);
    printf("%lu %d %d\n", shared.received, shared.received == shared.sent, shared.sum_received == shared.sum_sent);
    close_both(shared.ends);
}

/* A call of many bytes is not torn by another thread's, as long as there is room for all. */
static void *send_blocks(void *argument) {
    struct shared *shared = argument;
    uint8_t block[3000];
    memset(block, (int)atomic_fetch_add(&shared->sent, 1) + 1, sizeof block);
    for (int index = 0; index < 8; index++)
        MUST(send(shared->ends.a, block, sizeof block, 0));
    return NULL;
}

static void whole_blocks(void) {
    title("blocks of several threads");
    struct shared shared = {.ends = connected()};
    pthread_t threads[4];
    for (int index = 0; index < 4; index++)
        pthread_create(&threads[index], NULL, send_blocks, &shared);
    unsigned torn = 0, counts[5] = {0};
    for (int index = 0; index < 32; index++) {
        uint8_t block[3000];
        if (receive_all(shared.ends.b, block, sizeof block) != sizeof block)
            torn += 1000;
        for (size_t at = 1; at < sizeof block; at++)
            torn += block[at] != block[0];
        counts[block[0] % 5]++;
    }
    for (int index = 0; index < 4; index++)
        pthread_join(threads[index], NULL);
    printf("torn %u counts %u %u %u %u\n", torn, counts[1], counts[2], counts[3], counts[4]);
    close_both(shared.ends);
}

static void *accept_some(void *argument) {
    struct shared *shared = argument;
    for (;;) {
        int fd = accept(shared->listener, NULL, NULL);
        if (fd < 0)
            return NULL;
        char byte;
        if (recv(fd, &byte, 1, 0) == 1)
            send(fd, &byte, 1, MSG_NOSIGNAL);
        close(fd);
        atomic_fetch_add(&shared->received, 1);
    }
}

static void *connect_some(void *argument) {
    struct shared *shared = argument;
    for (int index = 0; index < 100; index++) {
        int fd = connected_to(port_of(shared->listener));
        char byte = (char)index, got = (char)~byte;
        send(fd, &byte, 1, MSG_NOSIGNAL);
        if (recv(fd, &got, 1, 0) == 1 && got == byte)
            atomic_fetch_add(&shared->sent, 1);
        close(fd);
    }
    return NULL;
}

static void accepting(void) {
    title("four threads accept, four connect");
    struct shared shared = {.listener = listening(64)};
    pthread_t acceptors[4], connectors[4];
    for (int index = 0; index < 4; index++) {
        pthread_create(&acceptors[index], NULL, accept_some, &shared);
        pthread_create(&connectors[index], NULL, connect_some, &shared);
    }
    for (int index = 0; index < 4; index++)
        pthread_join(connectors[index], NULL);
    shutdown(shared.listener, SHUT_RD);
    for (int index = 0; index < 4; index++)
        pthread_join(acceptors[index], NULL);
    printf("%lu %lu\n", shared.sent, shared.received);
    close(shared.listener);
}

static void note_waiter(struct shared *shared) {
    shared->waiters[atomic_fetch_add(&shared->waiters_count, 1)] = gettid();
}

static void *wait_and_take(void *argument) {
    struct shared *shared = argument;
    note_waiter(shared);
    for (;;) {
        struct epoll_event events[4];
        int count = epoll_wait(shared->epoll, events, 4, LONG_MS);
        if (count <= 0)
            return NULL;
        for (int index = 0; index < count; index++) {
            int fd = events[index].data.fd;
            if (fd == shared->stop)
                return NULL;
            char bytes[10];
            ssize_t length;
            while ((length = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT)) > 0)
                atomic_fetch_add(&shared->received, (unsigned long)length);
            struct epoll_event again = {.events = EPOLLIN | EPOLLONESHOT, .data.fd = fd};
            epoll_ctl(shared->epoll, EPOLL_CTL_MOD, fd, &again);
        }
    }
}

static void one_set(void) {
    title("four threads wait for one set");
    struct shared shared = {.epoll = epoll_create1(0), .stop = eventfd(0, 0)};
    struct ends all[16];
    for (int index = 0; index < 16; index++) {
        all[index] = connected();
        struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT, .data.fd = all[index].b};
        MUST(epoll_ctl(shared.epoll, EPOLL_CTL_ADD, all[index].b, &event));
    }
    pthread_t threads[4];
    for (int index = 0; index < 4; index++)
        pthread_create(&threads[index], NULL, wait_and_take, &shared);
    for (int index = 0; index < 2000; index++) {
        send_all(all[index % 16].a, "x", 1);
        for (int waiter = 0; index % 100 == 0 && waiter < 4; waiter++)
            await_thread_blocked(&shared.waiters[waiter]);
    }
    for (long limit = now_ms() + HANG_MS; shared.received < 2000 && now_ms() < limit;)
        sched_yield();
    struct epoll_event event = {.events = EPOLLIN, .data.fd = shared.stop};
    MUST(epoll_ctl(shared.epoll, EPOLL_CTL_ADD, shared.stop, &event));
    uint64_t one = 1;
    MUST(write(shared.stop, &one, sizeof one));
    for (int index = 0; index < 4; index++)
        pthread_join(threads[index], NULL);
    printf("%lu\n", shared.received);
    for (int index = 0; index < 16; index++)
        close_both(all[index]);
    close(shared.epoll);
    close(shared.stop);
}

static void *poll_once(void *argument) {
    struct shared *shared = argument;
    note_waiter(shared);
    struct pollfd wanted = {.fd = shared->ends.b, .events = POLLIN};
    if (poll(&wanted, 1, LONG_MS) == 1)
        atomic_fetch_add(&shared->received, 1);
    return NULL;
}

static void *epoll_once(void *argument) {
    struct shared *shared = argument;
    int epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN}, told;
    MUST(epoll_ctl(epoll, EPOLL_CTL_ADD, shared->ends.b, &event));
    note_waiter(shared);
    if (epoll_wait(epoll, &told, 1, LONG_MS) == 1)
        atomic_fetch_add(&shared->received, 1);
    close(epoll);
    return NULL;
}

/* All who wait for a descriptor are told, not the first alone. */
static void all_are_told(void) {
    title("several waiters of one descriptor");
    struct shared shared = {.ends = connected()};
    pthread_t threads[6];
    for (int index = 0; index < 6; index++)
        pthread_create(&threads[index], NULL, index % 2 ? poll_once : epoll_once, &shared);
    pid_t child;
    fflush(stdout);
    for (int index = 0; index < 6; index++)
        await_thread_blocked(&shared.waiters[index]);
    child = fork();
    if (child == 0) {
        struct pollfd wanted = {.fd = shared.ends.b, .events = POLLIN};
        _exit(poll(&wanted, 1, LONG_MS) == 1 ? 0 : 1);
    }
    await_blocked(child, child);
    long began = now_ms();
    send_all(shared.ends.a, "x", 1);
    for (int index = 0; index < 6; index++)
        pthread_join(threads[index], NULL);
    int status;
    MUST(waitpid(child, &status, 0));
    printf("%lu status %x soon %d\n", shared.received, status, now_ms() - began < 5000);
    close_both(shared.ends);
}

struct closing {
    struct shared *shared;
    int pieces;
};

/* Closes the sending end after some pieces. */
static void *close_it(void *argument) {
    struct closing *closing = argument;
    while (closing->shared->pieces < closing->pieces)
        sched_yield();
    close(closing->shared->ends.a);
    return NULL;
}

/* A connection is used while another thread closes others. */
static void turmoil(void) {
    title("closing while another thread sends");
    for (int index = 0; index < 20; index++) {
        struct ends ends = connected();
        pthread_t closer, receiver;
        struct shared shared = {.ends = ends};
        pthread_create(&receiver, NULL, receive_some, &shared);
        pthread_create(&closer, NULL, close_it, &(struct closing){&shared, index * 5 / 2});
        char bytes[1000] = {0};
        for (int round = 0; round < 50; round++) {
            if (send(ends.a, bytes, sizeof bytes, MSG_NOSIGNAL) < 0)
                break;
            atomic_fetch_add(&shared.pieces, 1);
        }
        pthread_join(closer, NULL);
        pthread_join(receiver, NULL);
        close(ends.b);
        if (shared.received > 50000 || shared.received % 1000 != 0)
            printf("received %lu\n", shared.received);
    }
    printf("done\n");
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    many_at_one();
    whole_blocks();
    accepting();
    one_set();
    all_are_told();
    turmoil();
    return 0;
}
