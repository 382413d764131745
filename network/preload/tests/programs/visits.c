/* Connections one after another, each with a byte in both directions. */
#include "fixture.h"

int main(void)
{
    int whole = 0;
    for (int round = 0; round < 20; round++) {
        int ends[2];
        char byte = 'x';
        join(ends);
        send_all(ends[0], &byte, 1);
        CHECK(read(ends[1], &byte, 1) == 1);
        send_all(ends[1], &byte, 1);
        whole += read(ends[0], &byte, 1) == 1;
        close(ends[0]);
        close(ends[1]);
    }
    printf("visits: %d\n", whole);
    return 0;
}
