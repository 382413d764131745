/* Threads that spawn programs at the same time, each of which inherits a connection. */
#include "fixture.h"
#include <spawn.h>

extern char **environ;

enum { THREADS = 4, SPAWNS = 12 };

static long told[THREADS];

static void *spawn_some(void *argument)
{
    long number = (long)argument;
    for (int spawn = 0; spawn < SPAWNS; spawn++) {
        int ends[2], status;
        char text[16], byte;
        pid_t child;
        join(ends);
        snprintf(text, sizeof text, "%d", ends[1]);
        char *arguments[] = {"spawns", text, NULL};
        CHECK(posix_spawn(&child, "/proc/self/exe", NULL, NULL, arguments, environ) == 0);
        close(ends[1]);
        if (recv(ends[0], &byte, 1, 0) == 1 && byte == 'c')
            told[number]++;
        CHECK(waitpid(child, &status, 0) == child);
        close(ends[0]);
    }
    return NULL;
}

int main(int count, char **arguments)
{
    pthread_t threads[THREADS];
    if (count > 1)
        return write(atoi(arguments[1]), "c", 1) != 1;
    for (long number = 0; number < THREADS; number++)
        CHECK(pthread_create(&threads[number], NULL, spawn_some, (void *)number) == 0);
    for (int number = 0; number < THREADS; number++) {
        CHECK(pthread_join(threads[number], NULL) == 0);
        tell("children heard", told[number]);
    }
    return 0;
}
