/* The end of a stream without room for it, and the sizes that the program sees. */
#include "fixture.h"

static int ends[2];
static char bytes[1 << 16];

static void *take(void *unused)
{
    (void)unused;
    ssize_t got;
    size_t total = 0;
    while ((got = read(ends[1], bytes, sizeof bytes)) > 0)
        total += got;
    printf("end %zd, all of it %d\n", got, total > sizeof bytes);
    fflush(stdout);
    send_all(ends[1], "done", 4);
    return NULL;
}

int main(void)
{
    pthread_t thread;
    char answer[4];
    join(ends);
    CHECK(fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0);
    while (send(ends[0], bytes, sizeof bytes, 0) > 0)
        ;
    tell("full", send(ends[0], bytes, sizeof bytes, 0));
    struct pollfd poller = {ends[0], POLLOUT, 0};
    tell("no room", poll(&poller, 1, 0));
    tell("end", shutdown(ends[0], SHUT_WR));
    CHECK(fcntl(ends[0], F_SETFL, 0) == 0);
    CHECK(pthread_create(&thread, NULL, take, NULL) == 0);
    tell("answer", recv(ends[0], answer, sizeof answer, MSG_WAITALL));
    CHECK(pthread_join(thread, NULL) == 0);
    return 0;
}
