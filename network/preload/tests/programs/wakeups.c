/* io_uring: the C library's syscall fails with ENOSYS, and the program falls back. A ring that is made by a raw
 * system call reads the end of the stream, and a write resets the connection. Where the two runs differ, the program
 * prints whether its own result is right. */
#include "fixture.h"
#include <linux/io_uring.h>
#include <sys/mman.h>

struct ring {
    int fd;
    unsigned *head, *tail, *entries, *ready_head, *ready_tail;
    unsigned mask, ready_mask;
    struct io_uring_sqe *asked;
    struct io_uring_cqe *ready;
};

/* False on kernels that permit no ring. */
static int make(struct ring *ring)
{
    struct io_uring_params has = {0};
    ring->fd = (int)past(SYS_io_uring_setup, 4, (long)&has, 0, 0, 0, 0);
    if (ring->fd < 0)
        return 0;
    size_t asks = has.sq_off.array + has.sq_entries * sizeof(unsigned);
    size_t answers = has.cq_off.cqes + has.cq_entries * sizeof(struct io_uring_cqe);
    int protection = PROT_READ | PROT_WRITE, flags = MAP_SHARED | MAP_POPULATE;
    char *asking = mmap(NULL, asks, protection, flags, ring->fd, IORING_OFF_SQ_RING);
    char *answering = mmap(NULL, answers, protection, flags, ring->fd, IORING_OFF_CQ_RING);
    ring->asked = mmap(NULL, has.sq_entries * sizeof *ring->asked, protection, flags, ring->fd, IORING_OFF_SQES);
    CHECK(asking != MAP_FAILED && answering != MAP_FAILED && ring->asked != MAP_FAILED);
    ring->head = (unsigned *)(asking + has.sq_off.head);
    ring->tail = (unsigned *)(asking + has.sq_off.tail);
    ring->mask = *(unsigned *)(asking + has.sq_off.ring_mask);
    ring->entries = (unsigned *)(asking + has.sq_off.array);
    ring->ready_head = (unsigned *)(answering + has.cq_off.head);
    ring->ready_tail = (unsigned *)(answering + has.cq_off.tail);
    ring->ready_mask = *(unsigned *)(answering + has.cq_off.ring_mask);
    ring->ready = (struct io_uring_cqe *)(answering + has.cq_off.cqes);
    return 1;
}

/* Result of one operation. */
static int ask(struct ring *ring, int operation, int fd, void *bytes, unsigned size)
{
    unsigned tail = *ring->tail, place = tail & ring->mask;
    ring->asked[place] = (struct io_uring_sqe){.opcode = operation, .fd = fd, .addr = (uintptr_t)bytes, .len = size,
                                               .off = (uint64_t)-1};
    ring->entries[place] = place;
    __atomic_store_n(ring->tail, tail + 1, __ATOMIC_RELEASE);
    CHECK(past(SYS_io_uring_enter, ring->fd, 1, 1, IORING_ENTER_GETEVENTS, 0, 0) == 1);
    unsigned head = *ring->ready_head;
    CHECK(__atomic_load_n(ring->ready_tail, __ATOMIC_ACQUIRE) != head);
    int result = ring->ready[head & ring->ready_mask].res;
    __atomic_store_n(ring->ready_head, head + 1, __ATOMIC_RELEASE);
    return result;
}

int main(void)
{
    int ends[2], is_at_user_level = getenv("LD_PRELOAD") != NULL;
    char bytes[16];
    join(ends);

    struct io_uring_params has = {0};
    long made = syscall(SYS_io_uring_setup, 4, &has);
    if (is_at_user_level)
        CHECK(made == -1 && errno == ENOSYS);
    else if (made >= 0)
        close((int)made);
    /* As a program without io_uring does. */
    send_all(ends[0], "without", 7);
    struct pollfd member = {ends[1], POLLIN, 0};
    tell("poll", poll(&member, 1, -1));
    tell("recv", recv(ends[1], bytes, 16, 0));

    struct ring ring;
    if (!make(&ring))
        return 0;
    /* It waits, so that the peer notifies after its send. */
    CHECK(poll(&member, 1, 1) == 0);
    send_all(ends[0], "bytes", 5);
    int got = ask(&ring, IORING_OP_READ, ends[1], bytes, sizeof bytes);
    CHECK(got == (is_at_user_level ? 0 : 5));
    int put = ask(&ring, IORING_OP_WRITE, ends[1], "astray", 6);
    CHECK(put == 6);
    ssize_t came = recv(ends[0], bytes, sizeof bytes, 0);
    if (is_at_user_level) {
        CHECK(came == -1 && errno == ECONNRESET);
        /* Bytes that were sent before arrive, and then the reset. */
        CHECK(recv(ends[1], bytes, sizeof bytes, 0) == 5 && memcmp(bytes, "bytes", 5) == 0);
        CHECK(recv(ends[1], bytes, sizeof bytes, 0) == -1 && errno == ECONNRESET);
    } else
        CHECK(came == 6);
    printf("over\n");
    return 0;
}
