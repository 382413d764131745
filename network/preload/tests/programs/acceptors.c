/* Threads and processes that block in accept, with clients by the kernel and at user level: each client is served. */
#include "fixture.h"
#include <sys/syscall.h>

#define ROUNDS 100
#define THREADS 3

static struct sockaddr_in address;
static int listener;

static void *serve(void *unused)
{
    for (;;) {
        char byte;
        int fd = accept(listener, NULL, NULL);
        if (fd < 0)
            continue;
        while (recv(fd, &byte, 1, 0) == 1)
            send_all(fd, &byte, 1);
        close(fd);
    }
    return unused;
}

static void serve_all(int unused)
{
    pthread_t threads[THREADS];
    (void)unused;
    for (int index = 1; index < THREADS; index++)
        CHECK(pthread_create(&threads[index], NULL, serve, NULL) == 0);
    serve(NULL);
}

static void echo(int fd)
{
    char byte = 0;
    send_all(fd, "e", 1);
    struct pollfd polled = {fd, POLLIN, 0};
    CHECK(poll(&polled, 1, 20000) == 1);
    CHECK(recv(fd, &byte, 1, 0) == 1 && byte == 'e');
    close(fd);
}

int main(void)
{
    listener = listen_at(&address);
    pid_t children[2] = {start(serve_all, 0), start(serve_all, 0)};
    for (int round = 0; round < ROUNDS; round++) {
        /* A socket bound to an address that another host could have is the kernel's. */
        int kernels[3];
        for (int index = 0; index < 3; index++) {
            kernels[index] = socket(AF_INET, SOCK_STREAM, 0);
            CHECK(kernels[index] >= 0);
            struct sockaddr name = {.sa_family = AF_UNSPEC};
            (void)name;
            /* A raw system call, past the library. */
            register long answer __asm__("rax") = SYS_connect;
            __asm__ volatile("syscall"
                             : "+a"(answer)
                             : "D"((long)kernels[index]), "S"(&address), "d"(sizeof address)
                             : "rcx", "r11", "memory");
            CHECK(answer == 0);
        }
        int ours[3];
        for (int index = 0; index < 3; index++)
            ours[index] = connect_to(&address);
        for (int index = 0; index < 3; index++) {
            echo(ours[index]);
            echo(kernels[index]);
        }
    }
    for (int index = 0; index < 2; index++) {
        kill(children[index], SIGKILL);
        waitpid(children[index], NULL, 0);
    }
    puts("each was served");
    return 0;
}
