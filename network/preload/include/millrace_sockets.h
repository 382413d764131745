/*
 * Sending and receiving without copies over user-level sockets.
 *
 * A program that includes this needs no library: what `millrace sockets run` loads before the C library is looked up
 * when a call is first made. Without it, and on descriptors that are the kernel's, every call fails with EOPNOTSUPP:
 * send and recv are the other way, and may be mixed with these on one connection. docs/user-level-sockets.md, "Without
 * copies", says what other calls do in between.
 *
 * Linux, C11 or C++11 with GNU extensions. With a C library older than glibc 2.34, link with -ldl.
 * Any thread may make any call, but in a handler of a signal: a call looks symbols up, and takes locks (EAGAIN).
 * millrace_reserve and millrace_borrow are points of cancellation; the others are none.
 */
#ifndef MILLRACE_SOCKETS_H
#define MILLRACE_SOCKETS_H

#ifndef _GNU_SOURCE
#error "millrace_sockets.h needs _GNU_SOURCE, before the first header"
#endif

#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <sys/types.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The most bytes that one place has. */
#define MILLRACE_PLACE_MAX 8192

/* The function of the library that is loaded, or null. `found` remembers which. */
static inline void *millrace_find(void **found, const char *name)
{
    void *function = __atomic_load_n(found, __ATOMIC_RELAXED);
    if (function == NULL) {
        function = dlsym(RTLD_DEFAULT, name);
        /* Its own place stands for what is not there. */
        __atomic_store_n(found, function != NULL ? function : (void *)found, __ATOMIC_RELAXED);
    }
    return function == (void *)found ? NULL : function;
}

/* Whether a descriptor is a connection that the other calls are for: 1 or 0. It stays what it is until it is closed. */
static inline int millrace_is_user_level(int fd)
{
    static void *found;
    void *function = millrace_find(&found, "millrace_is_user_level");
    if (function == NULL)
        return 0;
    return (__extension__ (int (*)(int))function)(fd);
}

/*
 * Reserves up to `length` bytes of room in the memory that the peer reads, in up to `count` (1 to 1,024) places, one
 * behind another in the stream; other places are empty then. Returns how many bytes they have together: at least 1, and
 * fewer than asked for if there is little room, or there are few places. Waits for room as send does; MSG_DONTWAIT is
 * the only flag. Until millrace_commit nothing else is sent on the connection.
 *
 * EAGAIN      no room, and the call must not wait, or it has waited for SO_SNDTIMEO
 * EBUSY       there is a reservation, of this process or of another that has the connection
 * EINTR       a signal came before there was room
 * EINVAL      no bytes, no place, or an unknown flag
 * EPIPE       the connection does not send any more (and no SIGPIPE)
 * ECONNRESET  the connection was broken off
 * EFAULT, EBADF, EOPNOTSUPP
 */
static inline ssize_t millrace_reserve(int fd, struct iovec *places, int count, size_t length, int flags)
{
    static void *found;
    void *function = millrace_find(&found, "millrace_reserve");
    if (function == NULL) {
        errno = EOPNOTSUPP;
        return -1;
    }
    return (__extension__ (ssize_t (*)(int, struct iovec *, int, size_t, int))function)(fd, places, count, length, flags);
}

/*
 * Sends the first `length` bytes of what was reserved, all of them at once, and returns how many these are; 0 sends
 * nothing. The places are the program's no more: a store to them breaks the connection.
 *
 * EBUSY       another process has reserved
 * EINVAL      there is no reservation, or it has fewer bytes: then it stays
 * EPIPE       the connection does not send any more (and no SIGPIPE)
 * ECONNRESET  the connection was broken off
 * EBADF, EOPNOTSUPP
 */
static inline ssize_t millrace_commit(int fd, size_t length)
{
    static void *found;
    void *function = millrace_find(&found, "millrace_commit");
    if (function == NULL) {
        errno = EOPNOTSUPP;
        return -1;
    }
    return (__extension__ (ssize_t (*)(int, size_t))function)(fd, length);
}

/*
 * Shows the next bytes of the stream where they lie, in up to `count` (1 to 1,024) places, and takes none. Returns how
 * many there are; 0 at the end of the stream. Waits for SO_RCVLOWAT bytes as recv does; MSG_DONTWAIT is the only flag.
 *
 * The places are to be read alone, until their bytes are received, by millrace_consume or another call, or the
 * connection is closed. The peer can change what is there at any time: copy what you check, and check the copy.
 *
 * EAGAIN      no bytes, and the call must not wait, or it has waited for SO_RCVTIMEO
 * EINTR       a signal came before there were bytes
 * EINVAL      no place, or an unknown flag
 * ECONNRESET  the connection was broken off
 * EFAULT, EBADF, EOPNOTSUPP
 */
static inline ssize_t millrace_borrow(int fd, struct iovec *places, int count, int flags)
{
    static void *found;
    void *function = millrace_find(&found, "millrace_borrow");
    if (function == NULL) {
        errno = EOPNOTSUPP;
        return -1;
    }
    return (__extension__ (ssize_t (*)(int, struct iovec *, int, int))function)(fd, places, count, flags);
}

/*
 * Receives up to `length` bytes without a copy, as many as there are, and returns how many. Does not wait. The peer can
 * use their places again.
 *
 * ECONNRESET, EBADF, EOPNOTSUPP
 */
static inline ssize_t millrace_consume(int fd, size_t length)
{
    static void *found;
    void *function = millrace_find(&found, "millrace_consume");
    if (function == NULL) {
        errno = EOPNOTSUPP;
        return -1;
    }
    return (__extension__ (ssize_t (*)(int, size_t))function)(fd, length);
}

#ifdef __cplusplus
}
#endif

#endif
