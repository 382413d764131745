/* Connections that carry nothing: made, accepted, closed, one after the other. */
#include "talk.h"

void visits_serve(const char *kind) {
    int listener = listen_on(kind);
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        if (fd < 0) die("accept");
        close(fd);
    }
}

void visits_ask(const char *kind, size_t count) {
    uint64_t *times = calloc(count, sizeof *times), began = nanoseconds();
    for (size_t i = 0; i < count; i++) {
        uint64_t start = nanoseconds();
        int fd = connect_to(kind);
        char byte;
        /* The other side closes first. */
        if (recv(fd, &byte, 1, 0) != 0) die("recv");
        close(fd);
        times[i] = nanoseconds() - start;
    }
    print_trips(times, count, (double)(nanoseconds() - began), 0, "");
}
