/* Flags of recv. */
#include "fixture.h"
#include "blocked.h"

static int ends[2];

static void *later(void *unused)
{
    (void)unused;
    for (int part = 0; part < 10; part++) {
        await_main_blocked();
        send_all(ends[0], "0123456789", 10);
    }
    return NULL;
}

int main(void)
{
    char bytes[256] = "";
    int pending;
    pthread_t thread;
    join(ends);
    tell("nothing", recv(ends[1], bytes, sizeof bytes, MSG_DONTWAIT));
    tell("nothing to peek", recv(ends[1], bytes, sizeof bytes, MSG_DONTWAIT | MSG_PEEK));
    send_all(ends[0], "abcdefgh", 8);
    send_all(ends[0], "ijkl", 4);
    await(ends[1], 12);
    tell("peek", recv(ends[1], bytes, 10, MSG_PEEK));
    printf("%.10s\n", bytes);
    tell("FIONREAD", ioctl(ends[1], FIONREAD, &pending));
    printf("%d\n", pending);
    tell("peek again", recv(ends[1], bytes, sizeof bytes, MSG_PEEK));
    struct iovec pieces[2] = {{bytes, 3}, {bytes + 100, 20}};
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = 2};
    tell("peek pieces", recvmsg(ends[1], &message, MSG_PEEK));
    printf("%.3s %.9s\n", bytes, bytes + 100);
    tell("trunc", recv(ends[1], NULL, 5, MSG_TRUNC));
    tell("rest", recv(ends[1], bytes, sizeof bytes, 0));
    printf("%.7s\n", bytes);
    tell("out of band", recv(ends[1], bytes, sizeof bytes, MSG_OOB));
    tell("zero", recv(ends[1], bytes, 0, MSG_DONTWAIT));
    tell("read of zero", read(ends[1], bytes, 0));
    send_all(ends[0], "x", 1);
    tell("zero of one", recv(ends[1], bytes, 0, 0));
    tell("one", recv(ends[1], bytes, 1, 0));
    CHECK(pthread_create(&thread, NULL, later, NULL) == 0);
    tell("wait for all", recv(ends[1], bytes, 100, MSG_WAITALL));
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(pthread_create(&thread, NULL, later, NULL) == 0);
    tell("wait and look", recv(ends[1], bytes, 100, MSG_WAITALL | MSG_PEEK));
    CHECK(pthread_join(thread, NULL) == 0);
    tell("take", recv(ends[1], bytes, 100, MSG_WAITALL));
    send_all(ends[0], "last", 4);
    shutdown(ends[0], SHUT_WR);
    tell("wait for more than comes", recv(ends[1], bytes, 100, MSG_WAITALL));
    return 0;
}
