/* Copies of a socket are connected with it; a listener that was shut down accepts nothing, and may listen again. */
#include "fixture.h"

int main(void)
{
    struct sockaddr_in address;
    char bytes[8];
    int listener = listen_at(&address);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    int copy = dup(fd), high = fcntl(copy, F_DUPFD_CLOEXEC, 40), other = dup(0);
    CHECK(connect(fd, (struct sockaddr *)&address, sizeof address) == 0);
    int accepted = accept(listener, NULL, NULL);
    tell("copy", send(copy, "x", 1, MSG_NOSIGNAL));
    tell("high", send(high, "y", 1, MSG_NOSIGNAL));
    tell("flags", fcntl(high, F_GETFD));
    close(fd);
    close(copy);
    tell("both", recv(accepted, bytes, 2, MSG_WAITALL));
    send_all(accepted, "back", 4);
    tell("back", recv(high, bytes, sizeof bytes, 0));
    close(high);
    tell("end", recv(accepted, bytes, sizeof bytes, 0));
    close(other);

    int twice = dup(listener);
    tell("shutdown", shutdown(listener, SHUT_RDWR));
    int late = socket(AF_INET, SOCK_STREAM, 0);
    tell("connect", connect(late, (struct sockaddr *)&address, sizeof address));
    tell("accept", accept(twice, NULL, NULL));
    tell("listen", listen(listener, 8));
    socklen_t size = sizeof address;
    CHECK(getsockname(listener, (struct sockaddr *)&address, &size) == 0);
    int again = socket(AF_INET, SOCK_STREAM, 0);
    tell("connect again", connect(again, (struct sockaddr *)&address, sizeof address));
    CHECK((accepted = accept(twice, NULL, NULL)) >= 0);
    send_all(again, "z", 1);
    tell("again", recv(accepted, bytes, sizeof bytes, 0));
    return 0;
}
