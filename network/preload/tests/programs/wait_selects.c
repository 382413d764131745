/* select and pselect. */
#include "wait.h"

int main(void)
{
    int ends[2], pipe_ends[2];
    char bytes[16];
    join(ends);
    CHECK(pipe(pipe_ends) == 0);
    for (int round = 0; round < 6; round++) {
        fd_set read_set, write_set, except_set;
        FD_ZERO(&read_set);
        FD_ZERO(&write_set);
        FD_ZERO(&except_set);
        FD_SET(ends[1], &read_set);
        FD_SET(ends[1], &except_set);
        FD_SET(pipe_ends[0], &read_set);
        if (round != 2)
            FD_SET(ends[0], &write_set);
        if (round == 1)
            send_all(ends[0], "abc", 3);
        if (round == 3)
            send_all(pipe_ends[1], "abc", 3);
        if (round == 5)
            shutdown(ends[0], SHUT_WR);
        struct timeval time = {0, round == 2 ? 20000 : 0};
        struct timespec long_time = {5, 0};
        int found = round == 2 ? select(64, &read_set, &write_set, &except_set, &time)
                    : round == 3 ? pselect(64, &read_set, &write_set, &except_set, &long_time, NULL)
                                 : select(64, &read_set, &write_set, &except_set, NULL);
        tell("select", found);
        printf("  read %d %d write %d except %d\n", !!FD_ISSET(ends[1], &read_set), !!FD_ISSET(pipe_ends[0], &read_set),
               !!FD_ISSET(ends[0], &write_set), !!FD_ISSET(ends[1], &except_set));
        if (round == 2)
            printf("  left %ld %ld\n", (long)time.tv_sec, (long)time.tv_usec);
        if (round == 1)
            tell("  read", read(ends[1], bytes, sizeof bytes));
        if (round == 3)
            tell("  read", read(pipe_ends[0], bytes, sizeof bytes));
    }
    fd_set wrong;
    FD_ZERO(&wrong);
    FD_SET(ends[1], &wrong);
    int closed = dup(0);
    close(closed);
    FD_SET(closed, &wrong);
    tell("not open", select(64, &wrong, NULL, NULL, NULL));
    tell("negative", select(-1, &wrong, NULL, NULL, NULL));
    return 0;
}
