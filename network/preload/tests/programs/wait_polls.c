/* poll and ppoll, with both kinds of descriptors. */
#include "wait.h"

static void tell_poll(const char *what, struct pollfd *members, int count, int timeout)
{
    tell(what, poll(members, count, timeout));
    for (int place = 0; place < count; place++)
        tell_events("  member", members[place].revents & ~POLLNVAL);
}

int main(void)
{
    int ends[2], pipe_ends[2];
    char bytes[16];
    struct sockaddr_in address;
    join(ends);
    CHECK(pipe(pipe_ends) == 0);
    int listener = listen_at(&address);
    struct pollfd members[] = {
        {ends[1], POLLIN, 0}, {pipe_ends[0], POLLIN, 0}, {-1, POLLIN, 0}, {listener, POLLIN, 0}, {ends[1], POLLOUT, 0},
    };
    tell_poll("room", members, 5, -1);
    tell_poll("nothing", members, 4, 0);
    tell_poll("nothing for a while", members, 4, 20);
    send_all(ends[0], "abc", 3);
    tell_poll("bytes", members, 5, -1);
    send_all(pipe_ends[1], "abc", 3);
    tell_poll("both", members, 5, -1);
    tell("read", read(ends[1], bytes, sizeof bytes));
    tell("read", read(pipe_ends[0], bytes, sizeof bytes));
    int fd = connect_to(&address);
    tell_poll("a connection", members, 4, -1);
    int accepted = accept(listener, NULL, NULL);
    CHECK(accepted >= 0);
    tell_poll("none", members, 4, 0);
    struct timespec brief = {0, 1000000}, wrong = {0, 2000000000};
    tell("ppoll", ppoll(members, 4, &brief, NULL));
    tell("ppoll", ppoll(members, 4, &wrong, NULL));
    members[0].fd = 999;
    tell_poll("not open", members, 2, 0);
    tell("which", members[0].revents);
    members[0].fd = ends[1];
    members[0].events = POLLIN | POLLRDHUP;
    shutdown(ends[0], SHUT_WR);
    tell_poll("the end", members, 2, -1);
    shutdown(ends[1], SHUT_WR);
    tell_poll("both ends", members, 2, -1);
    close(fd);
    members[0].fd = accepted;
    tell_poll("closed", members, 1, -1);
    return 0;
}
