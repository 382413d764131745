/* Connections and listeners that another program inherits. */
#include "fixture.h"
#include <spawn.h>

extern char **environ;

static void child(int fd)
{
    char bytes[64];
    ssize_t got = read(fd, bytes, sizeof bytes);
    printf("%s: %.*s\n", "another program got", (int)got, bytes);
    fflush(stdout);
    send_all(fd, "from another program", 20);
}

static void accept_there(int listener)
{
    int fd = accept(listener, NULL, NULL);
    CHECK(fd >= 0);
    send_all(fd, "accepted there", 14);
    close(fd);
}

static void answer(int fd, int end, pid_t pid)
{
    char bytes[64];
    CHECK(recv(fd, bytes, 20, MSG_WAITALL) == 20);
    printf("%.20s\n", bytes);
    fflush(stdout);
    close(end);
    finish(pid);
    tell("end", read(fd, bytes, sizeof bytes));
    close(fd);
}

int main(int count, char **arguments)
{
    if (count == 3) {
        if (arguments[1][0] == 'l')
            accept_there(atoi(arguments[2]));
        else
            child(atoi(arguments[2]));
        return 0;
    }
    int ends[2];
    char number[16];

    join(ends);
    send_all(ends[0], "by execv", 8);
    snprintf(number, sizeof number, "%d", ends[1]);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        char *again[] = {arguments[0], "c", number, NULL};
        execv("/proc/self/exe", again);
        _exit(1);
    }
    answer(ends[0], ends[1], pid);

    join(ends);
    send_all(ends[0], "by execl", 8);
    snprintf(number, sizeof number, "%d", ends[1]);
    pid = vfork();
    if (pid == 0) {
        execl("/proc/self/exe", arguments[0], "c", number, (char *)NULL);
        _exit(1);
    }
    answer(ends[0], ends[1], pid);

    join(ends);
    fcntl(ends[1], F_SETFD, FD_CLOEXEC);
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    send_all(ends[0], "spawned", 7);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 0);
    char *again[] = {arguments[0], "c", "0", NULL};
    int failed = posix_spawn(&pid, "/proc/self/exe", &actions, NULL, again, environ);
    answer(ends[0], ends[1], pid);
    tell("posix_spawn", failed);

    struct sockaddr_in address;
    int listener = listen_at(&address);
    snprintf(number, sizeof number, "%d", listener);
    pid = fork();
    if (pid == 0) {
        char *serve[] = {arguments[0], "l", number, NULL};
        execve("/proc/self/exe", serve, environ);
        _exit(1);
    }
    close(listener);
    int fd = connect_to(&address);
    char bytes[64];
    CHECK(recv(fd, bytes, 14, MSG_WAITALL) == 14);
    printf("%.14s\n", bytes);
    tell("end", read(fd, bytes, sizeof bytes));
    finish(pid);

    join(ends);
    char *missing[] = {"missing", NULL};
    tell("execv", execv("/there/is/none", missing));
    send_all(ends[0], "still", 5);
    tell("still", read(ends[1], bytes, sizeof bytes));
    return 0;
}
