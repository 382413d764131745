/* Descriptors in messages: a user-level connection is refused, all others pass. Where the two runs differ, the
 * program prints whether its own result is right. */
#include "fixture.h"

static int is_at_user_level;

static ssize_t pass(int over, const int *fds, int count)
{
    char room[CMSG_SPACE(4 * sizeof(int))] = {0}, byte = 'd';
    struct iovec piece = {&byte, 1};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = room,
                             .msg_controllen = CMSG_SPACE(count * sizeof(int))};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(count * sizeof(int));
    memcpy(CMSG_DATA(head), fds, count * sizeof(int));
    return sendmsg(over, &message, 0);
}

static int take(int over)
{
    char room[CMSG_SPACE(4 * sizeof(int))], byte;
    struct iovec piece = {&byte, 1};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    int fd = -1;
    CHECK(recvmsg(over, &message, MSG_CMSG_CLOEXEC) == 1);
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    CHECK(head != NULL && head->cmsg_type == SCM_RIGHTS);
    memcpy(&fd, CMSG_DATA(head), sizeof fd);
    return fd;
}

/* Receives a socket of the kernel's TCP, as a worker of a server does, and answers by it. */
static void work(int over)
{
    char bytes[16];
    int fd = take(over);
    ssize_t got = recv(fd, bytes, sizeof bytes, 0);
    CHECK(got > 0);
    send_all(fd, bytes, got);
    /* A listener passes as the kernel's. */
    int type = 0;
    socklen_t size = sizeof type;
    CHECK(getsockopt(take(over), SOL_SOCKET, SO_ACCEPTCONN, &type, &size) == 0);
    printf("listens %d\n", type);
}

int main(void)
{
    int ends[2], over[2], pipes[2];
    char bytes[16];
    is_at_user_level = getenv("LD_PRELOAD") != NULL;
    join(ends);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, over) == 0 && pipe(pipes) == 0);

    /* A connection alone, and behind another descriptor: nothing of the message is sent. */
    int both[2] = {pipes[0], ends[1]};
    for (int count = 1; count <= 2; count++) {
        ssize_t sent = pass(over[0], both + 2 - count, count);
        if (is_at_user_level)
            CHECK(sent == -1 && errno == EOPNOTSUPP);
        else {
            CHECK(sent == 1);
            close(take(over[1]));
        }
    }
    struct mmsghdr many = {0};
    char room[CMSG_SPACE(sizeof(int))] = {0}, byte = 'd';
    struct iovec piece = {&byte, 1};
    many.msg_hdr = (struct msghdr){.msg_iov = &piece, .msg_iovlen = 1, .msg_control = room,
                                   .msg_controllen = sizeof room};
    struct cmsghdr *head = CMSG_FIRSTHDR(&many.msg_hdr);
    *head = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
    memcpy(CMSG_DATA(head), &ends[1], sizeof(int));
    int sent = sendmmsg(over[0], &many, 1, 0);
    if (is_at_user_level)
        CHECK(sent == -1 && errno == EOPNOTSUPP);
    else {
        CHECK(sent == 1);
        close(take(over[1]));
    }
    tell("left", recv(over[1], bytes, 16, MSG_DONTWAIT));
    send_all(ends[0], "goes on", 7);
    tell("recv", recv(ends[1], bytes, 16, 0));

    /* Descriptors of the kernel pass: a pipe, a socket that is not connected yet, a listener. */
    tell("pipe", pass(over[0], &pipes[1], 1));
    int copy = take(over[1]);
    send_all(copy, "piped", 5);
    tell("read", read(pipes[0], bytes, 16));
    int fresh = socket(AF_INET, SOCK_STREAM, 0);
    tell("socket", pass(over[0], &fresh, 1));
    int again = take(over[1]);
    close(fresh);
    struct sockaddr_in address;
    int listener = listen_at(&address);
    CHECK(connect(again, (struct sockaddr *)&address, sizeof address) == 0);
    int accepted = accept(listener, NULL, NULL);
    send_all(again, "by a socket that came", 14);
    tell("recv", recv(accepted, bytes, 16, 0));
    tell("over a connection", pass(ends[0], pipes, 1));

    /* A connection of the kernel's TCP, made by raw system calls, works after the message. */
    int plain = socket(AF_INET, SOCK_STREAM, 0), stream[2];
    socklen_t size = sizeof address;
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(bind(plain, (struct sockaddr *)&address, sizeof address) == 0);
    CHECK(past(SYS_listen, plain, 1, 0, 0, 0, 0) == 0);
    CHECK(getsockname(plain, (struct sockaddr *)&address, &size) == 0);
    stream[0] = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(past(SYS_connect, stream[0], (long)&address, sizeof address, 0, 0, 0) == 0);
    stream[1] = (int)past(SYS_accept4, plain, 0, 0, 0, 0, 0);
    CHECK(stream[1] >= 0);
    pid_t child = start(work, over[1]);
    tell("stream", pass(over[0], &stream[1], 1));
    close(stream[1]);
    send_all(stream[0], "to the worker", 13);
    tell("recv", recv(stream[0], bytes, 16, 0));
    int passed = pass(over[0], &listener, 1);
    finish(child);
    tell("listener", passed);
    return 0;
}
