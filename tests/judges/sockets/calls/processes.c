/* fork, vfork, exec, posix_spawn, and descriptors handed to others. */
#include "calls.h"
#include <spawn.h>

extern char **environ;

static void say_status(const char *what, pid_t child) {
    int status = -1;
    MUST(waitpid(child, &status, 0));
    printf("%s: status %x\n", what, status);
    fflush(stdout);
}

static void inherited(void) {
    title("a connection in two processes");
    struct ends ends = connected();
    char got[32];
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        close(ends.b);
        send_all(ends.a, "of the child", 12);
        receive_all(ends.a, got, 10);
        _exit(memcmp(got, "to a child", 10) == 0 ? 0 : 1);
    }
    SAY(recv(ends.b, got, 12, MSG_WAITALL));
    SAY(send(ends.b, "to a child", 10, 0));
    say_status("child", child);
    /* The child's end was no end: the parent holds it, too. */
    say_events("b", ends.b);
    SAY(send(ends.a, "of the parent", 13, 0));
    SAY(recv(ends.b, got, 32, 0));
    fflush(stdout);
    child = fork();
    if (child == 0) {
        close(ends.a);
        _exit(0);
    }
    say_status("child that closes", child);
    SAY(send(ends.a, "still", 5, 0));
    SAY(recv(ends.b, got, 32, 0));
    fflush(stdout);
    child = fork();
    if (child == 0) {
        shutdown(ends.a, SHUT_WR);
        _exit(0);
    }
    say_status("child that shuts down", child);
    await(ends.b, POLLRDHUP);
    SAY(recv(ends.b, got, 32, 0));
    SAY(send(ends.a, "x", 1, MSG_NOSIGNAL));
    close_both(ends);
    /* The parent closes, the child goes on. */
    ends = connected();
    int gate[2];
    MUST(pipe(gate));
    fflush(stdout);
    child = fork();
    if (child == 0) {
        close(gate[1]);
        close(ends.b);
        read(gate[0], got, 1);
        send_all(ends.a, "after", 5);
        _exit(0);
    }
    close(ends.a);
    say_events("b", ends.b);
    close(gate[1]);
    SAY(recv(ends.b, got, 5, MSG_WAITALL));
    say_status("child", child);
    SAY(recv(ends.b, got, 5, 0));
    close(ends.b);
    close(gate[0]);
}

/* Each worker echoes connections until one sends the word to end. */
static int work(int listener) {
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        if (fd < 0)
            return 2;
        char got[64];
        ssize_t length;
        while ((length = recv(fd, got, sizeof got, 0)) > 0) {
            if (memcmp(got, "end", 3) == 0) {
                close(fd);
                return 0;
            }
            send_all(fd, got, (size_t)length);
        }
        close(fd);
    }
}

static void workers(void) {
    title("many workers accept from one listener");
    int listener = listening(64);
    pid_t children[4];
    fflush(stdout);
    for (int index = 0; index < 4; index++) {
        children[index] = fork();
        if (children[index] == 0)
            _exit(work(listener));
    }
    unsigned sum = 0;
    for (int index = 0; index < 200; index++) {
        int fd = connected_to(port_of(listener));
        uint8_t out[8], in[8];
        pattern(out, 8, (uint64_t)index);
        send_all(fd, out, 8);
        if (receive_all(fd, in, 8) == 8 && memcmp(in, out, 8) == 0)
            sum++;
        close(fd);
    }
    printf("echoed %u\n", sum);
    for (int index = 0; index < 4; index++) {
        int fd = connected_to(port_of(listener));
        send_all(fd, "end", 3);
        char byte;
        recv(fd, &byte, 1, 0);
        close(fd);
    }
    for (int index = 0; index < 4; index++)
        say_status("worker", children[index]);
    close(listener);
}

static void child_of_each(void) {
    title("a child for each connection");
    int listener = listening(16);
    fflush(stdout);
    pid_t server = fork();
    if (server == 0) {
        for (int index = 0; index < 20; index++) {
            int fd = (int)MUST(accept(listener, NULL, NULL));
            pid_t child = fork();
            if (child == 0) {
                close(listener);
                char got[64];
                ssize_t length;
                while ((length = recv(fd, got, sizeof got, 0)) > 0)
                    send_all(fd, got, (size_t)length);
                _exit(0);
            }
            close(fd);
        }
        for (int index = 0; index < 20; index++)
            wait(NULL);
        _exit(0);
    }
    uint16_t port = port_of(listener);
    close(listener);
    int fds[20], good = 0;
    for (int index = 0; index < 20; index++)
        fds[index] = connected_to(port);
    for (int index = 19; index >= 0; index--) {
        uint8_t out[50], in[50];
        pattern(out, 50, (uint64_t)index);
        send_all(fds[index], out, 50);
        good += receive_all(fds[index], in, 50) == 50 && memcmp(in, out, 50) == 0;
        shutdown(fds[index], SHUT_WR);
        good += recv(fds[index], in, 1, 0) == 0;
        close(fds[index]);
    }
    printf("good %d\n", good);
    say_status("server", server);
}

/* The program again, as another: it speaks over the descriptor that it was given. */
static int again(int fd) {
    char got[32];
    ssize_t length = read(fd, got, sizeof got);
    if (length <= 0)
        return 3;
    struct sockaddr_in peer;
    socklen_t size = sizeof peer;
    if (getpeername(fd, (struct sockaddr *)&peer, &size) != 0 || peer.sin_family != AF_INET)
        return 4;
    dprintf(fd, "[%.*s]", (int)length, got);
    char byte;
    while (read(fd, &byte, 1) > 0)
        ;
    return 0;
}

static void executed(const char *program) {
    title("exec");
    char number[16], got[32];
    const char *ways[] = {"fork", "vfork", "posix_spawn", "on its standard input"};
    for (int way = 0; way < 4; way++) {
        struct ends ends = connected();
        MUST(fcntl(ends.b, F_SETFD, FD_CLOEXEC));
        send_all(ends.b, "before ", 7);
        await_bytes(ends.a, 7);
        recv(ends.a, got, 3, 0);
        snprintf(number, sizeof number, "%d", way == 3 ? 0 : ends.a);
        char *arguments[] = {(char *)program, "again", number, NULL};
        pid_t child;
        fflush(stdout);
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        if (way == 3)
            posix_spawn_file_actions_adddup2(&actions, ends.a, 0);
        if (way == 0) {
            child = fork();
            if (child == 0) {
                execv(program, arguments);
                _exit(9);
            }
        } else if (way == 1) {
            child = vfork();
            if (child == 0) {
                execve(program, arguments, environ);
                _exit(9);
            }
        } else {
            MUST(-posix_spawn(&child, program, &actions, NULL, arguments, environ));
        }
        close(ends.a);
        ssize_t length = recv(ends.b, got, 6, MSG_WAITALL);
        printf("%s: %zd %.*s\n", ways[way], length, length > 0 ? (int)length : 0, got);
        shutdown(ends.b, SHUT_WR);
        say_status("program", child);
        SAY(recv(ends.b, got, 32, 0));
        close(ends.b);
        posix_spawn_file_actions_destroy(&actions);
    }
    title("exec of who holds none");
    struct ends ends = connected();
    MUST(fcntl(ends.a, F_SETFD, FD_CLOEXEC));
    MUST(fcntl(ends.b, F_SETFD, FD_CLOEXEC));
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        snprintf(number, sizeof number, "%d", ends.a);
        execl(program, program, "again", number, NULL);
        _exit(9);
    }
    close(ends.a);
    say_status("program", child);
    await(ends.b, POLLRDHUP);
    SAY(recv(ends.b, got, 32, 0));
    close(ends.b);
    title("exec of a listener");
    int listener = listening(8);
    uint16_t port = port_of(listener);
    fflush(stdout);
    child = fork();
    if (child == 0) {
        snprintf(number, sizeof number, "%d", listener);
        execl(program, program, "accept", number, NULL);
        _exit(9);
    }
    close(listener);
    for (int index = 0; index < 5; index++) {
        int fd = connected_to(port);
        send_all(fd, index == 4 ? "end" : "abc", 3);
        SAY(recv(fd, got, 3, MSG_WAITALL));
        close(fd);
    }
    say_status("program", child);
    fflush(stdout);
    SAY_OK(system("true"));
    FILE *pipe = popen("echo from a shell", "r");
    printf("%s", fgets(got, sizeof got, pipe));
    pclose(pipe);
}

static void shell(void) {
    title("a shell over a connection");
    struct ends ends = connected();
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends.a, 0);
        dup2(ends.a, 1);
        close(ends.a);
        close(ends.b);
        execl("/bin/sh", "sh", NULL);
        _exit(9);
    }
    close(ends.a);
    send_all(ends.b, "echo hello; seq 1 1000 | tail -n 1\nexit 5\n", 42);
    char got[64];
    size_t length = receive_all(ends.b, got, sizeof got);
    printf("%.*s", (int)length, got);
    say_status("shell", child);
    close(ends.b);
}

static void threads_and_fork(void) {
    title("many children");
    struct ends ends = connected();
    unsigned good = 0;
    fflush(stdout);
    for (int index = 0; index < 50; index++) {
        pid_t child = fork();
        if (child == 0) {
            /* A connection of the child's own, beside the one of the parent. */
            struct ends own = connected();
            char byte = 'x', got = 0;
            send_all(own.a, &byte, 1);
            recv(own.b, &got, 1, 0);
            send_all(ends.a, &got, 1);
            _exit(got == 'x' ? 0 : 1);
        }
        char got;
        good += recv(ends.b, &got, 1, 0) == 1 && got == 'x';
        int status;
        MUST(waitpid(child, &status, 0));
        good += status == 0;
    }
    printf("good %u\n", good);
    close_both(ends);
}

int main(int count, char **arguments) {
    signal(SIGPIPE, SIG_IGN);
    if (count == 3 && strcmp(arguments[1], "again") == 0)
        return again(atoi(arguments[2]));
    if (count == 3 && strcmp(arguments[1], "accept") == 0)
        return work(atoi(arguments[2]));
    inherited();
    workers();
    child_of_each();
    threads_and_fork();
    executed(arguments[0]);
    shell();
    return 0;
}
