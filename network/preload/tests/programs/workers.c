/* A listener that several processes share, and connections that children serve. */
#include "fixture.h"

enum { WORKERS = 3, CLIENTS = 30 };

static void work(int listener)
{
    for (;;) {
        char byte;
        int fd = accept(listener, NULL, NULL);
        CHECK(fd >= 0);
        CHECK(read(fd, &byte, 1) == 1);
        if (byte == 'q')
            return;
        byte++;
        send_all(fd, &byte, 1);
        close(fd);
    }
}

static void answer(int fd)
{
    char bytes[16];
    tell("child got", read(fd, bytes, sizeof bytes));
    send_all(fd, "child", 5);
}

int main(void)
{
    struct sockaddr_in address;
    int listener = listen_at(&address);
    pid_t workers[WORKERS];
    for (int worker = 0; worker < WORKERS; worker++)
        workers[worker] = start(work, listener);
    int sum = 0;
    for (int client = 0; client < CLIENTS; client++) {
        char byte = client;
        int fd = connect_to(&address);
        send_all(fd, &byte, 1);
        CHECK(read(fd, &byte, 1) == 1);
        sum += byte;
        CHECK(read(fd, &byte, 1) == 0);
        close(fd);
    }
    printf("sum %d\n", sum);
    for (int worker = 0; worker < WORKERS; worker++) {
        int fd = connect_to(&address);
        send_all(fd, "q", 1);
        char byte;
        tell("end of worker", read(fd, &byte, 1));
        close(fd);
    }
    for (int worker = 0; worker < WORKERS; worker++)
        finish(workers[worker]);
    close(listener);

    int ends[2];
    char bytes[64];
    join(ends);
    send_all(ends[0], "to child", 8);
    pid_t child = start(answer, ends[1]);
    CHECK(recv(ends[0], bytes, 5, MSG_WAITALL) == 5);
    printf("%.5s\n", bytes);
    finish(child);
    tell("parent still has it", send(ends[1], "parent", 6, 0));
    tell("recv", recv(ends[0], bytes, sizeof bytes, 0));
    close(ends[1]);
    tell("end", recv(ends[0], bytes, sizeof bytes, 0));
    return 0;
}
