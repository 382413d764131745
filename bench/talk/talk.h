/* What the parts of `talk` share: sockets, ways to wait, and what is printed. */
#ifndef TALK_H
#define TALK_H

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* How a side waits: in the call, not at all (it calls again), or for an event. */
enum mode { BLOCKING, POLLING, EPOLL };

_Noreturn void die(const char *what);
uint64_t nanoseconds(void);
enum mode mode_of(const char *name);

/* A socket of the kind, tcp:PORT or unix:PATH, that listens; says "ready" on standard output. */
int listen_on(const char *kind);
/* A blocking socket that is connected to the kind. */
int connect_to(const char *kind);
/* The next connection, blocking. */
int accept_from(int listener, const char *kind);
void set_nonblocking(int fd);
/* A set with the sockets; -1 if the mode needs none. */
int make_set(enum mode mode, const int *fds, int count);
/* Waits as the mode says. */
void await(int fd, enum mode mode, int set, uint32_t events);
/* Sends all; waits as the mode says when it must. */
void send_all(int fd, enum mode mode, int set, const void *bytes, size_t size);
/* Receives `size` bytes, or fewer at the end; looks first and waits then. */
size_t receive_all(int fd, enum mode mode, int set, void *bytes, size_t size);

/* Starts a thread. */
pthread_t start(void *(*run)(void *), void *what);
/* Sorts the times; `bytes` went over the connections; `more` is further fields, each with a comma before it. */
void print_trips(uint64_t *times, size_t count, double elapsed_ns, uint64_t bytes, const char *more);
void print_flood(uint64_t elapsed_ns, size_t size, size_t count);

/* The parts: each has one side that serves until it is ended, and one that asks. */
_Noreturn void trips_serve(const char *kind, enum mode mode, size_t size);
void trips_ask(const char *kind, enum mode mode, size_t size, size_t count, int connections, int is_flood);
void ring(size_t size, size_t count, int is_flood, int first, int second);
_Noreturn void crowd_serve(const char *kind, size_t size, int is_flood);
void crowd_ask(const char *kind, size_t size, int is_flood, int pairs, int milliseconds);
_Noreturn void beside_serve(const char *kind);
void beside_ask(const char *kind, int large, int milliseconds);
_Noreturn void visits_serve(const char *kind);
void visits_ask(const char *kind, size_t count);
_Noreturn void exchanges_serve(const char *kind);
void exchanges_ask(const char *kind, size_t count);
_Noreturn void sums_serve(const char *kind, size_t size, int is_in_place);
void sums_ask(const char *kind, size_t size, int is_in_place, size_t count);

#endif
