/* Splices lose no bytes that the other side does not take at once. */
#include "fixture.h"

static char bytes[16384];

int main(void)
{
    int ends[2], small = 1024, ways[2], left;
    struct sockaddr_in address;
    int listener = listen_at(&address);
    ends[0] = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    CHECK(connect(ends[0], (struct sockaddr *)&address, sizeof address) == 0);
    ends[1] = accept(listener, NULL, NULL);
    CHECK(ends[1] >= 0);
    CHECK(pipe2(ways, O_NONBLOCK) == 0);
    CHECK(write(ways[1], bytes, sizeof bytes) == (ssize_t)sizeof bytes);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    long moved = splice(ways[0], NULL, ends[0], NULL, sizeof bytes, SPLICE_F_NONBLOCK);
    ioctl(ways[0], FIONREAD, &left);
    printf("all is somewhere: %d\n", moved > 0 && moved + left == (long)sizeof bytes);
    while (moved > 0)
        moved -= recv(ends[1], bytes, sizeof bytes, 0);
    while (left > 0)
        left -= read(ways[0], bytes, sizeof bytes);

    /* A pipe whose first page was read in part. */
    send_all(ends[1], bytes, sizeof bytes);
    while (ioctl(ends[0], FIONREAD, &left), left < (int)sizeof bytes)
        ;
    for (int index = 0; index < 3; index++)
        CHECK(write(ways[1], bytes, sizeof bytes) == (ssize_t)sizeof bytes);
    CHECK(write(ways[1], bytes, 12000) == 12000);
    CHECK(read(ways[0], bytes, 100) == 100);
    moved = splice(ends[0], NULL, ways[1], NULL, sizeof bytes, SPLICE_F_NONBLOCK);
    ioctl(ends[0], FIONREAD, &left);
    printf("all is somewhere: %d\n", moved > 0 && moved + left == (long)sizeof bytes);
    tell("nothing", splice(ends[0], NULL, ways[1], NULL, 0, 0));
    return 0;
}
