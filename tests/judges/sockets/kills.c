/* Servers and clients that move checked bytes over many connections, for a judge that kills some of them.
 *
 *     kills serve PORT               listens, answers each connection with a stream, checks the one that comes
 *     kills ask PORT COUNT SEED      opens COUNT connections, sends on each, checks what comes back
 *
 * The bytes of a stream are decided by the connection's number and their place; a stream begins with that number. Who
 * sees a byte that is none of its stream's next says "WRONG". A connection that ended in order or by a reset says
 * nothing; a client opens another in its place. Each second a line says how much was moved, lest silence is a hang, and
 * how many streams were over.
 */
#include "calls/calls.h"

#define CONNECTIONS 2048
#define PIECE 4000

struct stream {
    int fd;
    uint64_t number, sent, received;
    bool greeted;
};

static struct stream streams[CONNECTIONS];
static uint64_t moved;
/* Streams that were over by their end, and by an error. */
static unsigned ended, broken;

static void expected(const struct stream *stream, uint8_t *bytes, size_t length) {
    pattern(bytes, length, stream->received + stream->number * 1000003);
}

static void end(int epoll, struct stream *stream) {
    epoll_ctl(epoll, EPOLL_CTL_DEL, stream->fd, NULL);
    close(stream->fd);
    stream->fd = -1;
}

static void begin(int epoll, int fd, uint64_t number, bool greeted) {
    for (int index = 0; index < CONNECTIONS; index++)
        if (streams[index].fd < 0) {
            streams[index] = (struct stream){.fd = nonblocking(fd), .number = number, .greeted = greeted};
            struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP, .data.u64 = (uint64_t)index};
            MUST(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event));
            return;
        }
    close(fd);
}

static bool over(ssize_t length) {
    bool is_over = length == 0 || errno != EAGAIN;
    ended += length == 0;
    broken += length != 0 && is_over;
    return is_over;
}

/* False when the stream is over. */
static bool take(struct stream *stream) {
    uint8_t got[PIECE], wanted[PIECE];
    if (!stream->greeted) {
        uint64_t number;
        ssize_t length = recv(stream->fd, &number, sizeof number, MSG_PEEK);
        if (length < (ssize_t)sizeof number)
            return length > 0 || !over(length);
        recv(stream->fd, &number, sizeof number, 0);
        stream->number = number;
        stream->greeted = true;
    }
    ssize_t length = recv(stream->fd, got, sizeof got, 0);
    if (length <= 0)
        return !over(length);
    expected(stream, wanted, (size_t)length);
    if (memcmp(got, wanted, (size_t)length) != 0) {
        printf("WRONG bytes of stream %lu at %lu\n", stream->number, stream->received);
        fflush(stdout);
    }
    stream->received += (uint64_t)length;
    moved += (uint64_t)length;
    return true;
}

static bool give(struct stream *stream, bool server) {
    if (server && !stream->greeted)
        return true;
    uint8_t bytes[PIECE];
    if (!server && stream->sent == 0 && !stream->greeted) {
        if (send(stream->fd, &stream->number, sizeof stream->number, MSG_NOSIGNAL) != sizeof stream->number)
            return !over(-1);
        stream->greeted = true;
    }
    pattern(bytes, sizeof bytes, stream->sent + stream->number * 1000003);
    ssize_t length = send(stream->fd, bytes, sizeof bytes, MSG_NOSIGNAL);
    if (length < 0)
        return !over(length);
    stream->sent += (uint64_t)length;
    return true;
}

static void turn(int epoll, int listener, bool server) {
    struct epoll_event events[64];
    int count = epoll_wait(epoll, events, 64, 200);
    for (int index = 0; index < count; index++) {
        if (events[index].data.u64 == CONNECTIONS) {
            int fd = accept(listener, NULL, NULL);
            if (fd >= 0)
                begin(epoll, fd, 0, false);
            continue;
        }
        struct stream *stream = &streams[events[index].data.u64];
        bool goes_on = stream->fd >= 0;
        if (goes_on && (events[index].events & (EPOLLIN | EPOLLHUP | EPOLLERR | EPOLLRDHUP)) && (server || stream->greeted))
            goes_on = take(stream);
        if (goes_on && (events[index].events & EPOLLOUT))
            goes_on = give(stream, server);
        if (!goes_on && stream->fd >= 0)
            end(epoll, stream);
    }
}

int main(int count, char **arguments) {
    if (count < 3)
        return 2;
    signal(SIGPIPE, SIG_IGN);
    bool server = strcmp(arguments[1], "serve") == 0;
    uint16_t port = (uint16_t)atoi(arguments[2]);
    int epoll = epoll_create1(0), listener = -1, wanted = 0;
    uint64_t next = 0;
    for (int index = 0; index < CONNECTIONS; index++)
        streams[index].fd = -1;
    struct sockaddr_in address = loopback(port);
    if (server) {
        int on = 1;
        listener = (int)MUST(socket(AF_INET, SOCK_STREAM, 0));
        MUST(setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
        MUST(setsockopt(listener, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on));
        MUST(bind(listener, (struct sockaddr *)&address, sizeof address));
        MUST(listen(listener, 512));
        nonblocking(listener);
        struct epoll_event event = {.events = EPOLLIN, .data.u64 = CONNECTIONS};
        MUST(epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event));
    } else {
        wanted = atoi(arguments[3]);
        next = strtoull(arguments[4], NULL, 10) << 32;
    }
    for (long told = now_ms();;) {
        int open = 0;
        for (int index = 0; index < CONNECTIONS; index++)
            open += streams[index].fd >= 0;
        /* One at a time, lest a server that just died is asked for ever. */
        if (open < wanted) {
            int fd = socket(AF_INET, SOCK_STREAM, 0);
            if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
                begin(epoll, fd, next++, false);
            else
                close(fd);
        }
        turn(epoll, listener, server);
        if (now_ms() - told >= 1000) {
            printf("%d open, %lu moved, %u ended, %u broken\n", open, moved, ended, broken);
            fflush(stdout);
            told = now_ms();
        }
    }
}
