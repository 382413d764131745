/* Two programs that talk over a stream and know nothing of what carries it.
 *
 *   talk trips  KIND serve MODE SIZE
 *   talk trips  KIND ask MODE SIZE trips|flood COUNT CONNECTIONS
 *   talk crowd  KIND serve SIZE trips|flood
 *   talk crowd  KIND ask SIZE trips|flood PAIRS MILLISECONDS
 *   talk beside KIND serve
 *   talk beside KIND ask LARGE MILLISECONDS
 *   talk visits KIND serve
 *   talk visits KIND ask COUNT
 *   talk exchanges KIND serve
 *   talk exchanges KIND ask COUNT
 *   talk sums   KIND serve SIZE calls|in-place
 *   talk sums   KIND ask SIZE calls|in-place COUNT
 *   talk ring   SIZE trips|flood COUNT FIRST-CPU SECOND-CPU
 *
 * KIND is tcp:PORT or unix:PATH. MODE says how a side waits: blocking, polling (non-blocking calls in a loop) or
 * epoll. trips: messages of SIZE bytes there and back, one at a time, over the connections in turn; flood: COUNT
 * messages one way over one connection, then one byte back. crowd: pairs of blocking threads, a connection each, for
 * a time. beside: a small flow there and back beside large ones one way, for a time. visits: connections that carry nothing.
 * exchanges: connections that carry 64 bytes there and back. sums: a payload that is made and added up, one way. ring: two
 * processes and a ring in memory they share, the least that any of this can take. The asking side prints one line of JSON.
 */
#include "talk.h"

static const char *const *words;
static int words_left;

static const char *word(void) {
    if (!words_left) {
        fputs("talk: a word is missing; talk.c says which there are\n", stderr);
        exit(2);
    }
    words_left--;
    return *words++;
}

static size_t number(void) { return (size_t)atol(word()); }

static int is(const char *expected) { return !strcmp(word(), expected); }

int main(int count, char **arguments) {
    words = (const char *const *)arguments + 1;
    words_left = count - 1;
    const char *part = word();
    if (!strcmp(part, "ring")) {
        size_t size = number();
        int is_flood = is("flood");
        size_t messages = number();
        int first = (int)number();
        ring(size, messages, is_flood, first, (int)number());
        return 0;
    }
    const char *kind = word();
    int serves = is("serve");
    if (!strcmp(part, "trips")) {
        enum mode mode = mode_of(word());
        size_t size = number();
        if (serves) trips_serve(kind, mode, size);
        int is_flood = is("flood");
        size_t messages = number();
        trips_ask(kind, mode, size, messages, (int)number(), is_flood);
    } else if (!strcmp(part, "crowd")) {
        size_t size = number();
        int is_flood = is("flood");
        if (serves) crowd_serve(kind, size, is_flood);
        int pairs = (int)number();
        crowd_ask(kind, size, is_flood, pairs, (int)number());
    } else if (!strcmp(part, "beside")) {
        if (serves) beside_serve(kind);
        int large = (int)number();
        beside_ask(kind, large, (int)number());
    } else if (!strcmp(part, "visits")) {
        if (serves) visits_serve(kind);
        visits_ask(kind, number());
    } else if (!strcmp(part, "exchanges")) {
        if (serves) exchanges_serve(kind);
        exchanges_ask(kind, number());
    } else if (!strcmp(part, "sums")) {
        size_t size = number();
        int is_in_place = is("in-place");
        if (serves) sums_serve(kind, size, is_in_place);
        sums_ask(kind, size, is_in_place, number());
    } else {
        errno = EINVAL;
        die(part);
    }
    return 0;
}
