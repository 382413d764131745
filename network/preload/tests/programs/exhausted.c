/* No free descriptors: pending connections stay pending; with few of them connections are still made. */
#include "fixture.h"
#include <sys/resource.h>

int main(void)
{
    struct sockaddr_in address;
    int listener = listen_at(&address);
    CHECK(fcntl(listener, F_SETFL, O_NONBLOCK) == 0);
    struct rlimit few;
    CHECK(getrlimit(RLIMIT_NOFILE, &few) == 0);
    few.rlim_cur = 128;
    CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
    int own = connect_to(&address);
    CHECK(write(own, "x", 1) == 1);
    static int held[128];
    int count = 0;
    while ((held[count] = dup(1)) >= 0)
        count++;
    tell("accept without descriptors", accept(listener, NULL, NULL));
    while (count > 0)
        close(held[--count]);
    int other = accept(listener, NULL, NULL);
    CHECK(other >= 0);
    char byte = 0;
    tell("accepted later", recv(other, &byte, 1, 0));
    close(own);
    close(other);

    /* A connection uses no visible number besides its own. */
    static int ends[40][2];
    for (int index = 0; index < 40; index++) {
        ends[index][0] = connect_to(&address);
        ends[index][1] = accept(listener, NULL, NULL);
        CHECK(ends[index][1] >= 0);
    }
    for (int index = 0; index < 40; index++) {
        CHECK(write(ends[index][0], "y", 1) == 1);
        CHECK(recv(ends[index][1], &byte, 1, 0) == 1);
    }
    puts("all of them work");
    /* An address that cannot be written costs no descriptor. */
    int before = dup(0);
    for (int index = 0; index < 4; index++) {
        struct sockaddr_in name;
        socklen_t wrong = (socklen_t)-1;
        int fd = connect_to(&address);
        int got = accept(listener, (struct sockaddr *)&name, &wrong);
        tell("a wrong size", got < 0 ? got : 0);
        close(fd);
    }
    close(before);
    int after = dup(0);
    tell("numbers that were lost", after - before);
    return 0;
}
