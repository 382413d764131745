/* Results of other calls while room is reserved or bytes are borrowed. */
#include "fixture.h"
#include "blocked.h"
#include <millrace_sockets.h>
#include <sys/epoll.h>

#define FAILS(call, why) CHECK((call) == -1 && errno == (why))

static int ends[2];
static struct iovec places[4];
static char bytes[1 << 16];

static ssize_t reserve(size_t size) { return millrace_reserve(ends[0], places, 4, size, 0); }

/* Reads all bytes that the peer gets. */
static void expect(const char *text)
{
    size_t size = strlen(text);
    memset(bytes, 0, size);
    CHECK(recv(ends[1], bytes, size, MSG_WAITALL) == (ssize_t)size);
    CHECK(memcmp(bytes, text, size) == 0);
    FAILS(recv(ends[1], bytes, 1, MSG_DONTWAIT), EAGAIN);
}

static void put(const char *text)
{
    CHECK(reserve(strlen(text)) == (ssize_t)strlen(text));
    memcpy(places[0].iov_base, text, strlen(text));
}

/* Waits until `count` bytes have arrived, which a forwarder may move one after the other. */
static ssize_t borrow(ssize_t least)
{
    ssize_t got;
    while ((got = millrace_borrow(ends[1], places, 4, 0)) >= 0 && got < least)
        sched_yield();
    return got;
}

static void refusals(void)
{
    int pipes[2];
    CHECK(pipe(pipes) == 0);
    CHECK(!millrace_is_user_level(pipes[0]));
    FAILS(millrace_reserve(pipes[1], places, 1, 1, 0), EOPNOTSUPP);
    FAILS(millrace_commit(pipes[1], 1), EOPNOTSUPP);
    FAILS(millrace_borrow(pipes[0], places, 1, 0), EOPNOTSUPP);
    FAILS(millrace_consume(pipes[0], 1), EOPNOTSUPP);
}

static void arguments(void)
{
    FAILS(millrace_reserve(-1, places, 1, 1, 0), EBADF);
    FAILS(millrace_reserve(ends[0], places, 1, 0, 0), EINVAL);
    FAILS(millrace_reserve(ends[0], places, 0, 1, 0), EINVAL);
    FAILS(millrace_reserve(ends[0], places, -1, 1, 0), EINVAL);
    FAILS(millrace_reserve(ends[0], places, 2000, 1, 0), EINVAL);
    FAILS(millrace_reserve(ends[0], NULL, 1, 1, 0), EFAULT);
    FAILS(millrace_reserve(ends[0], places, 1, 1, MSG_OOB), EINVAL);
    FAILS(millrace_commit(ends[0], 0), EINVAL);
    FAILS(millrace_borrow(ends[1], places, 0, 0), EINVAL);
    FAILS(millrace_borrow(ends[1], places, 1, MSG_PEEK), EINVAL);
    FAILS(millrace_borrow(ends[1], places, 1, MSG_DONTWAIT), EAGAIN);
    CHECK(millrace_consume(ends[1], 10) == 0);
}

static void others_are_refused(void)
{
    put("first");
    FAILS(reserve(1), EBUSY);
    FAILS(send(ends[0], "x", 1, 0), EBUSY);
    FAILS(write(ends[0], "x", 1), EBUSY);
    FAILS(send(ends[0], "x", 1, MSG_OOB), EBUSY);
    int copy = dup(ends[0]);
    FAILS(send(copy, "x", 1, MSG_DONTWAIT), EBUSY);
    FAILS(millrace_commit(ends[0], 6), EINVAL);
    CHECK(millrace_commit(copy, 5) == 5);
    close(copy);
    CHECK(send(ends[0], " second", 7, 0) == 7);
    expect("first second");
    put("never");
    CHECK(millrace_commit(ends[0], 0) == 0);
    put("part and more");
    CHECK(millrace_commit(ends[0], 4) == 4);
    expect("part");
}

static void *commit(void *result)
{
    *(ssize_t *)result = millrace_commit(ends[0], 3);
    return NULL;
}

static void threads_and_processes(void)
{
    pthread_t thread;
    ssize_t sent;
    int status;
    put("abc");
    CHECK(pthread_create(&thread, NULL, commit, &sent) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(sent == 3);
    put("def");
    pid_t child = fork();
    if (child == 0) {
        FAILS(millrace_commit(ends[0], 3), EBUSY);
        FAILS(send(ends[0], "x", 1, 0), EBUSY);
        FAILS(reserve(1), EBUSY);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(millrace_commit(ends[0], 3) == 3);
    expect("abcdef");
    /* The reservation of an exited process is void. */
    child = fork();
    if (child == 0) {
        put("lost");
        kill(getpid(), SIGKILL);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
    CHECK(send(ends[0], "still", 5, 0) == 5);
    expect("still");
    int closed[2];
    char byte;
    CHECK(pipe(closed) == 0);
    child = fork();
    if (child == 0) {
        put("lost");
        close(ends[0]);
        CHECK(write(closed[1], "c", 1) == 1);
        pause();
    }
    /* Waits until the child's call of close has returned: a process that is killed amid a change of the connection resets
       it. */
    CHECK(read(closed[0], &byte, 1) == 1);
    close(closed[0]);
    close(closed[1]);
    CHECK(send(ends[0], "again", 5, 0) == 5);
    expect("again");
    kill(child, SIGKILL);
    CHECK(waitpid(child, &status, 0) == child);
}

/* A program that executes another one loses its reservation, though the process is the same. */
static void another_program(const char *own)
{
    char number[16];
    int status;
    snprintf(number, sizeof number, "%d", ends[0]);
    pid_t child = fork();
    if (child == 0) {
        put("lost");
        execl(own, own, number, (char *)NULL);
        _exit(1);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    expect("another");
}

static void looks(void)
{
    int pending;
    char one;
    CHECK(send(ends[0], "hello, world", 12, 0) == 12);
    CHECK(borrow(12) == 12);
    CHECK(places[0].iov_len == 12 && memcmp(places[0].iov_base, "hello, world", 12) == 0);
    void *first = places[0].iov_base;
    struct pollfd watched = {ends[1], POLLIN, 0};
    CHECK(poll(&watched, 1, 0) == 1 && watched.revents == POLLIN);
    CHECK(ioctl(ends[1], FIONREAD, &pending) == 0 && pending == 12);
    CHECK(millrace_consume(ends[1], 5) == 5);
    CHECK(borrow(7) == 7);
    CHECK(places[0].iov_base == (char *)first + 5 && places[0].iov_len == 7);
    CHECK(recv(ends[1], &one, 1, 0) == 1 && one == ',');
    CHECK(recv(ends[1], bytes, 6, MSG_PEEK) == 6 && memcmp(bytes, " world", 6) == 0);
    CHECK(millrace_consume(ends[1], 100) == 6);
    CHECK(poll(&watched, 1, 0) == 0);
    int low = 8;
    CHECK(setsockopt(ends[1], SOL_SOCKET, SO_RCVLOWAT, &low, sizeof low) == 0);
    CHECK(send(ends[0], "1234", 4, 0) == 4);
    CHECK(send(ends[0], "5678", 4, 0) == 4);
    CHECK(millrace_borrow(ends[1], places, 4, 0) == 8);
    CHECK(millrace_consume(ends[1], 8) == 8);
    low = 1;
    CHECK(setsockopt(ends[1], SOL_SOCKET, SO_RCVLOWAT, &low, sizeof low) == 0);
}

/* No room, an edge after room was freed, and timeouts. */
static void room(void)
{
    struct timeval time = {0, 20000};
    ssize_t got;
    size_t sent = 0, taken = 0;
    int set = epoll_create1(0);
    struct epoll_event wanted = {EPOLLOUT | EPOLLET, {0}}, event;
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, ends[0], &wanted) == 0);
    CHECK(epoll_wait(set, &event, 1, 0) == 1);
    CHECK(setsockopt(ends[0], SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time) == 0);
    while ((got = reserve(sizeof bytes)) > 0) {
        for (int place = 0; place < 4; place++)
            memset(places[place].iov_base, 7, places[place].iov_len);
        CHECK(millrace_commit(ends[0], got) == got);
        sent += got;
    }
    CHECK(errno == EAGAIN);
    CHECK(sent > 100000);
    FAILS(millrace_reserve(ends[0], places, 4, 1000, MSG_DONTWAIT), EAGAIN);
    CHECK(epoll_wait(set, &event, 1, 0) == 0);
    while (taken < sent) {
        got = borrow(1);
        CHECK(got > 0);
        for (int place = 0; place < 4; place++)
            for (size_t byte = 0; byte < places[place].iov_len; byte++)
                CHECK(((char *)places[place].iov_base)[byte] == 7);
        CHECK(millrace_consume(ends[1], got) == got);
        taken += got;
    }
    CHECK(epoll_wait(set, &event, 1, 10000) == 1);
    CHECK(reserve(sizeof bytes) > 0);
    CHECK(millrace_commit(ends[0], 0) == 0);
    close(set);
    time.tv_usec = 0;
    CHECK(setsockopt(ends[0], SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time) == 0);
    time.tv_usec = 20000;
    CHECK(setsockopt(ends[1], SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time) == 0);
    FAILS(millrace_borrow(ends[1], places, 1, 0), EAGAIN);
}

static void *borrow_for_ever(void *unused)
{
    struct iovec place;
    (void)unused;
    millrace_borrow(ends[1], &place, 1, 0);
    return NULL;
}

/* The thread that reserves for ever. */
static volatile pid_t reserver;

static void *reserve_for_ever(void *unused)
{
    struct iovec place;
    (void)unused;
    reserver = gettid();
    while (millrace_reserve(ends[0], &place, 1, MILLRACE_PLACE_MAX, 0) > 0)
        CHECK(millrace_commit(ends[0], place.iov_len) > 0);
    return NULL;
}

/* A thread that is cancelled in one of the calls holds nothing afterwards. */
static void cancelling(void)
{
    struct timeval time = {0, 0};
    pthread_t thread;
    void *result;
    CHECK(setsockopt(ends[1], SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time) == 0);
    CHECK(pthread_create(&thread, NULL, borrow_for_ever, NULL) == 0);
    CHECK(pthread_cancel(thread) == 0);
    CHECK(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
    CHECK(pthread_create(&thread, NULL, reserve_for_ever, NULL) == 0);
    await_thread_blocked(&reserver);
    CHECK(pthread_cancel(thread) == 0);
    CHECK(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
    /* There is no cancellation point between a reservation and its commit. */
    FAILS(millrace_commit(ends[0], 0), EINVAL);
    close(ends[0]);
    close(ends[1]);
    join(ends);
}

static void ending(void)
{
    put("voided");
    CHECK(shutdown(ends[0], SHUT_WR) == 0);
    FAILS(millrace_commit(ends[0], 6), EPIPE);
    FAILS(reserve(1), EPIPE);
    CHECK(borrow(0) == 0);
    CHECK(millrace_consume(ends[1], 1) == 0);
    close(ends[0]);
    close(ends[1]);
    join(ends);
    /* The peer closes while room is reserved, and while bytes are borrowed. */
    CHECK(send(ends[1], "borrowed", 8, 0) == 8);
    struct iovec kept[1];
    CHECK(millrace_borrow(ends[0], kept, 1, 0) == 8);
    put("to a closed peer");
    close(ends[1]);
    while ((errno = 0, millrace_commit(ends[0], 9)) == 9)
        while (reserve(9) < 0 && errno == EAGAIN)
            ;
    CHECK(errno == EPIPE || errno == ECONNRESET || errno == EINVAL);
    CHECK(memcmp(kept[0].iov_base, "borrowed", 8) == 0);
    CHECK(millrace_consume(ends[0], 8) == 8);
    close(ends[0]);
    FAILS(millrace_commit(ends[0], 0), EBADF);
}

int main(int count, char **words)
{
    if (count > 1)
        return send(atoi(words[1]), "another", 7, 0) != 7;
    signal(SIGPIPE, SIG_DFL);
    join(ends);
    refusals();
    if (millrace_is_user_level(ends[0])) {
        CHECK(millrace_is_user_level(ends[1]));
        arguments();
        others_are_refused();
        threads_and_processes();
        another_program(words[0]);
        looks();
        room();
        cancelling();
        ending();
    } else {
        FAILS(reserve(1), EOPNOTSUPP);
        FAILS(millrace_commit(ends[0], 1), EOPNOTSUPP);
        FAILS(millrace_borrow(ends[1], places, 1, 0), EOPNOTSUPP);
        FAILS(millrace_consume(ends[1], 1), EOPNOTSUPP);
    }
    printf("done\n");
    return 0;
}
