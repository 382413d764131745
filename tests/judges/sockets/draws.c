/* Draws sequences of calls on a pair of connected sockets from seeds, and prints what each call gave.
 *
 *     draws FIRST COUNT              a line for each seed: its number and a digest of what its calls gave
 *     draws SEED - [STEPS]           what each call of one seed gave; STEPS, numbers with commas, leaves out the others
 *
 * A step is drawn from the seed and its own number alone, so that any part of a sequence is a sequence too. Before
 * each step all that is under way has arrived, so that TCP on one host has one answer. Amounts stay small enough that
 * no send is ever cut short.
 */
#include "calls/calls.h"

#define STEPS 60
#define NUMBERS 3
#define EPOLLS 2
/* Of one direction: more than this is never under way. */
#define UNDER_WAY_MAX 30000

struct end {
    int numbers[NUMBERS];
    /* What the model knows. */
    bool closed, shut_read, shut_write;
    size_t unread;
    uint64_t sent;
};

static struct end sides[2];
static int epolls[EPOLLS];
/* What follows is a matter of time. */
static bool broken;
static char text[1 << 16];
static size_t length;

static void tell(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int count = vsnprintf(text + length, sizeof text - length, format, arguments);
    va_end(arguments);
    if (count > 0 && length + (size_t)count < sizeof text)
        length += (size_t)count;
}

static const char *outcome(long result) {
    static char word[32];
    if (result == -1)
        snprintf(word, sizeof word, "%s", strerrorname_np(errno));
    else
        snprintf(word, sizeof word, "%ld", result);
    return word;
}

static uint64_t state;
static uint32_t draw(uint32_t below) {
    state += 0x9e3779b97f4a7c15;
    uint64_t mixed = state;
    mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9;
    mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111eb;
    return (uint32_t)((mixed ^ mixed >> 31) >> 11) % below;
}

/* Any open number of a side; -1 when all are closed. */
static int number_of(struct end *end) {
    uint32_t first = draw(NUMBERS);
    for (uint32_t index = 0; index < NUMBERS; index++)
        if (end->numbers[(first + index) % NUMBERS] >= 0)
            return end->numbers[(first + index) % NUMBERS];
    return -1;
}

static int first_number(const struct end *end) {
    for (int index = 0; index < NUMBERS; index++)
        if (end->numbers[index] >= 0)
            return end->numbers[index];
    return -1;
}

/* Waits until an end that was sent is acknowledged, which TCP tells as an event of its own: the peer is asked to say so
 * at once. */
static void settle_end(int fd, int peer) {
    struct tcp_info info = {0};
    int on = 1;
    for (long limit = now_ms() + HANG_MS; now_ms() < limit;) {
        socklen_t size = sizeof info;
        if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == -1
            || (info.tcpi_state != TCP_FIN_WAIT1 && info.tcpi_state != TCP_CLOSING && info.tcpi_state != TCP_LAST_ACK))
            return;
        if (peer >= 0)
            setsockopt(peer, IPPROTO_TCP, TCP_QUICKACK, &on, sizeof on);
        sched_yield();
    }
    tell("an end is never acknowledged\n");
    broken = true;
}

/* Waits until what was sent can be received, and ends are seen. After a reset nothing more is known. */
static void settle(void) {
    for (int side = 0; side < 2 && !broken; side++)
        if (sides[side].shut_write && first_number(&sides[side]) >= 0)
            settle_end(first_number(&sides[side]), first_number(&sides[1 - side]));
    for (int side = 0; side < 2 && !broken; side++) {
        struct end *end = &sides[side], *peer = &sides[1 - side];
        int fd = first_number(end);
        if (fd < 0)
            continue;
        for (long limit = now_ms() + HANG_MS;;) {
            int pending = 0;
            struct pollfd wanted = {.fd = fd, .events = POLLIN | POLLRDHUP};
            ioctl(fd, FIONREAD, &pending);
            poll(&wanted, 1, 0);
            bool ended = peer->shut_write || peer->closed;
            if ((size_t)pending == end->unread && (!ended || (wanted.revents & POLLRDHUP)))
                break;
            if (now_ms() > limit) {
                tell("never settled: %d of %zu, %s\n", pending, end->unread, bits((unsigned short)wanted.revents));
                broken = true;
                break;
            }
            sched_yield();
        }
    }
}

static void receive(struct end *end, struct end *peer, int fd, uint32_t way) {
    uint8_t bytes[4000];
    size_t most = draw(8) ? 1 + draw(1500) : 4000;
    struct iovec parts[2] = {{bytes, most / 3}, {bytes + most / 3, most - most / 3}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    int flags = MSG_DONTWAIT | (draw(4) == 0 ? MSG_PEEK : 0);
    long got;
    switch (way) {
    case 0: got = recv(fd, bytes, most, flags); break;
    case 1: got = read(fd, bytes, most), flags = 0; break;
    case 2: got = readv(fd, parts, 2), flags = 0; break;
    case 3: got = recvmsg(fd, &message, flags); break;
    default: got = recv(fd, bytes, most, flags | MSG_WAITALL); break;
    }
    tell("receive %u %zu%s: %s", way, most, flags & MSG_PEEK ? " peek" : "", outcome(got));
    if (got > 0) {
        tell(" %08x", (unsigned)digest(bytes, (size_t)got));
        if (!(flags & MSG_PEEK))
            end->unread -= (size_t)got;
    }
    (void)peer;
    tell("\n");
}

static void give(struct end *end, struct end *peer, int fd, uint32_t way) {
    static uint8_t bytes[12000];
    size_t amount = draw(6) ? draw(700) : draw(12000);
    if (peer->unread + amount > UNDER_WAY_MAX)
        amount = 0;
    pattern(bytes, amount, end->sent);
    struct iovec parts[2] = {{bytes, amount / 3}, {bytes + amount / 3, amount - amount / 3}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    long sent;
    switch (way) {
    case 0: sent = send(fd, bytes, amount, MSG_NOSIGNAL); break;
    case 1: sent = write(fd, bytes, amount); break;
    case 2: sent = writev(fd, parts, 2); break;
    default: sent = sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL); break;
    }
    tell("send %u %zu: %s\n", way, amount, outcome(sent));
    if (sent > 0) {
        end->sent += (uint64_t)sent;
        peer->unread += (size_t)sent;
        /* Whom nobody hears is answered by a reset; what follows is a matter of time. */
        broken |= peer->closed || (peer->shut_read && peer->shut_write);
    }
}

static void close_one(struct end *end, struct end *peer) {
    uint32_t index = draw(NUMBERS);
    if (end->numbers[index] < 0)
        return;
    tell("close: %s\n", outcome(close(end->numbers[index])));
    end->numbers[index] = -1;
    if (first_number(end) < 0) {
        end->closed = true;
        /* A reset, then. */
        broken |= end->unread > 0 && !peer->closed;
    }
}

static void copy_one(struct end *end) {
    uint32_t index = draw(NUMBERS), way = draw(3);
    int fd = number_of(end);
    if (end->numbers[index] >= 0 || fd < 0)
        return;
    int copy = way == 0 ? dup(fd) : way == 1 ? fcntl(fd, F_DUPFD_CLOEXEC, 50) : dup2(fd, 90 + (int)index + (end == sides ? 0 : 5));
    tell("copy %u: %d\n", way, copy >= 0);
    end->numbers[index] = copy;
}

static void shut(struct end *end, struct end *peer, int fd) {
    int how = draw(4) ? SHUT_WR : draw(2) ? SHUT_RD : SHUT_RDWR;
    long result = shutdown(fd, how);
    tell("shutdown %d: %s\n", how, outcome(result));
    if (result == 0) {
        end->shut_write |= how != SHUT_RD;
        end->shut_read |= how != SHUT_WR;
    }
    (void)peer;
}

static void look(int fd, uint32_t way) {
    struct pollfd wanted = {.fd = fd, .events = POLLIN | POLLOUT | POLLRDHUP};
    fd_set in, out;
    FD_ZERO(&in);
    FD_ZERO(&out);
    FD_SET(fd, &in);
    FD_SET(fd, &out);
    int value = 0;
    socklen_t size = sizeof value;
    switch (way) {
    case 0:
        tell("poll: %s", outcome(poll(&wanted, 1, 0)));
        tell(" %s\n", bits((unsigned short)wanted.revents));
        break;
    case 1:
        tell("select: %s", outcome(select(fd + 1, &in, &out, NULL, &(struct timeval){0, 0})));
        tell(" %d %d\n", FD_ISSET(fd, &in) != 0, FD_ISSET(fd, &out) != 0);
        break;
    case 2:
        tell("FIONREAD: %s", outcome(ioctl(fd, FIONREAD, &value)));
        tell(" %d\n", value);
        break;
    case 3:
        tell("SO_ERROR: %s", outcome(getsockopt(fd, SOL_SOCKET, SO_ERROR, &value, &size)));
        tell(" %d\n", value);
        break;
    default:
        tell("flags: %x %d\n", fcntl(fd, F_GETFL) & (O_NONBLOCK | O_ACCMODE), fcntl(fd, F_GETFD) >= 0);
        break;
    }
}

/* A set holds each end at most once, by its first number of the time. */
static void change_set(int epoll, int side, int fd) {
    static const uint32_t wishes[] = {EPOLLIN, EPOLLIN | EPOLLOUT, EPOLLIN | EPOLLRDHUP, EPOLLOUT, 0};
    uint32_t events = wishes[draw(5)] | (draw(2) ? EPOLLET : 0) | (draw(4) == 0 ? EPOLLONESHOT : 0);
    struct epoll_event event = {.events = events, .data.u64 = (uint64_t)side};
    int operation = draw(4) == 0 ? EPOLL_CTL_DEL : draw(2) ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
    tell("epoll_ctl %d %x: %s\n", operation, events, outcome(epoll_ctl(epoll, operation, fd, &event)));
}

static void wait_for_set(int epoll) {
    struct epoll_event events[8];
    int count = epoll_wait(epoll, events, 8, 0);
    tell("epoll_wait: %s", outcome(count));
    for (uint64_t side = 0; side < 2; side++)
        for (int index = 0; index < count; index++)
            if (events[index].data.u64 == side)
                tell(" %lu:%s", side, bits(events[index].events));
    tell("\n");
}

/* A child does something on the same sockets. */
static void in_child(struct end *end, struct end *peer, int fd) {
    uint8_t bytes[100];
    uint32_t what = draw(3);
    int pipes[2];
    if (peer->unread > UNDER_WAY_MAX || pipe(pipes) != 0)
        return;
    pattern(bytes, sizeof bytes, end->sent);
    pid_t child = fork();
    if (child == 0) {
        long told[2] = {0, 0};
        told[0] = what == 0   ? send(fd, bytes, sizeof bytes, MSG_NOSIGNAL)
                  : what == 1 ? recv(fd, bytes, sizeof bytes, MSG_DONTWAIT)
                              : close(fd);
        told[1] = errno;
        if (write(pipes[1], told, sizeof told) < 0)
            _exit(1);
        _exit(0);
    }
    long told[2] = {-2, 0};
    close(pipes[1]);
    if (read(pipes[0], told, sizeof told) < 0)
        tell("the child said nothing ");
    close(pipes[0]);
    waitpid(child, NULL, 0);
    errno = (int)told[1];
    tell("child %u: %s\n", what, outcome(told[0]));
    if (told[0] > 0 && what == 0) {
        end->sent += (uint64_t)told[0];
        peer->unread += (size_t)told[0];
        broken |= peer->closed || (peer->shut_read && peer->shut_write);
    } else if (told[0] > 0 && what == 1) {
        end->unread -= (size_t)told[0];
    }
}

static void step(uint64_t seed, uint64_t number) {
    state = seed * 1000003 + number * 7919;
    draw(2);
    int side = (int)draw(2);
    struct end *end = &sides[side], *peer = &sides[1 - side];
    int fd = number_of(end);
    if (fd < 0)
        return;
    uint32_t kind = draw(100);
    tell("%lu %c ", number, "ab"[side]);
    size_t before = length;
    if (kind < 25)
        give(end, peer, fd, draw(4));
    else if (kind < 50)
        receive(end, peer, fd, draw(5));
    else if (kind < 65)
        look(fd, draw(5));
    else if (kind < 75)
        change_set(epolls[draw(EPOLLS)], side, end->numbers[0] >= 0 ? end->numbers[0] : fd);
    else if (kind < 90)
        wait_for_set(epolls[draw(EPOLLS)]);
    else if (kind < 92)
        copy_one(end);
    else if (kind < 95)
        close_one(end, peer);
    else if (kind < 97)
        shut(end, peer, fd);
    else
        in_child(end, peer, fd);
    if (length == before)
        tell("nothing\n");
}

static void sequence(uint64_t seed, const char *steps) {
    struct ends ends = connected();
    length = 0;
    broken = false;
    memset(sides, 0, sizeof sides);
    for (int side = 0; side < 2; side++)
        for (int index = 0; index < NUMBERS; index++)
            sides[side].numbers[index] = -1;
    /* Else small sends wait for the answer to earlier ones. */
    int on = 1;
    MUST(setsockopt(ends.a, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on));
    MUST(setsockopt(ends.b, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on));
    sides[0].numbers[0] = nonblocking(ends.a);
    sides[1].numbers[0] = nonblocking(ends.b);
    for (int index = 0; index < EPOLLS; index++)
        epolls[index] = epoll_create1(EPOLL_CLOEXEC);
    for (uint64_t number = 0; number < STEPS && !broken; number++) {
        char wanted[24];
        snprintf(wanted, sizeof wanted, ",%lu,", number);
        if (steps != NULL && strstr(steps, wanted) == NULL)
            continue;
        settle();
        if (!broken)
            step(seed, number);
    }
    for (int side = 0; side < 2; side++)
        for (int index = 0; index < NUMBERS; index++)
            if (sides[side].numbers[index] >= 0)
                close(sides[side].numbers[index]);
    for (int index = 0; index < EPOLLS; index++)
        close(epolls[index]);
}

int main(int count, char **arguments) {
    if (count < 3)
        return 2;
    signal(SIGPIPE, SIG_IGN);
    uint64_t first = strtoull(arguments[1], NULL, 10);
    if (arguments[2][0] == '-') {
        alarm(20);
        sequence(first, count > 3 ? arguments[3] : NULL);
        printf("%s", text);
        return 0;
    }
    for (uint64_t seed = first; seed < first + strtoull(arguments[2], NULL, 10); seed++) {
        /* Who hangs dies, and the last line says at which seed. */
        alarm(20);
        sequence(seed, NULL);
        printf("%lu %016lx\n", seed, digest(text, length));
        fflush(stdout);
    }
    return 0;
}
