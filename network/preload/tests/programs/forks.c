/* Children that do nothing, a child that serves, and one that drops privileges first; both without an environment. */
#include "fixture.h"

enum { IDLE = 8 };

static void idle(int fd)
{
    (void)fd;
}

static void serve(int listener)
{
    CHECK(clearenv() == 0);
    int fd = accept(listener, NULL, NULL);
    CHECK(fd >= 0);
    send_all(fd, "served", 6);
    close(fd);
}

static void serve_without_rights(int listener)
{
    CHECK(clearenv() == 0 && setuid(getuid()) == 0);
    serve(listener);
}

int main(void)
{
    struct sockaddr_in address;
    char bytes[8];
    int listener = listen_at(&address);
    for (int number = 0; number < IDLE; number++)
        finish(start(idle, -1));
    for (int number = 0; number < 2; number++) {
        pid_t child = start(number == 0 ? serve : serve_without_rights, listener);
        int fd = connect_to(&address);
        tell("recv", recv(fd, bytes, sizeof bytes, MSG_WAITALL));
        finish(child);
        close(fd);
    }
    return 0;
}
