/* Connections made, accepted and closed, one after the other: with nothing in them, or with a message there and back. */
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

enum { EXCHANGED = 64 };

void exchanges_serve(const char *kind) {
    int listener = listen_on(kind);
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        if (fd < 0) die("accept");
        char bytes[EXCHANGED];
        if (receive_all(fd, BLOCKING, -1, bytes, sizeof bytes) == sizeof bytes)
            send_all(fd, BLOCKING, -1, bytes, sizeof bytes);
        close(fd);
    }
}

void exchanges_ask(const char *kind, size_t count) {
    uint64_t *times = calloc(count, sizeof *times), began = nanoseconds();
    char bytes[EXCHANGED] = {0};
    for (size_t i = 0; i < count; i++) {
        uint64_t start = nanoseconds();
        int fd = connect_to(kind);
        send_all(fd, BLOCKING, -1, bytes, sizeof bytes);
        if (receive_all(fd, BLOCKING, -1, bytes, sizeof bytes) != sizeof bytes) die("cut short");
        close(fd);
        times[i] = nanoseconds() - start;
    }
    print_trips(times, count, (double)(nanoseconds() - began), 2 * EXCHANGED * count, "");
}
