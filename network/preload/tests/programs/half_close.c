/* One side ends its stream, the other still sends. */
#include "fixture.h"

int main(void)
{
    int ends[2];
    char bytes[64];
    join(ends);
    send_all(ends[0], "question", 8);
    tell("shutdown", shutdown(ends[0], SHUT_WR));
    tell("write after shutdown", send(ends[0], "x", 1, MSG_NOSIGNAL));
    tell("question", recv(ends[1], bytes, sizeof bytes, 0));
    tell("end", recv(ends[1], bytes, sizeof bytes, 0));
    tell("end again", read(ends[1], bytes, sizeof bytes));
    send_all(ends[1], "answer", 6);
    tell("answer", recv(ends[0], bytes, sizeof bytes, 0));
    close(ends[1]);
    tell("its end", recv(ends[0], bytes, sizeof bytes, 0));
    tell("shutdown again", shutdown(ends[0], SHUT_RDWR));
    close(ends[0]);
    tell("closed", recv(ends[0], bytes, sizeof bytes, 0));

    join(ends);
    send_all(ends[0], "kept", 4);
    tell("shutdown of reading", shutdown(ends[1], SHUT_RD));
    tell("what came before", recv(ends[1], bytes, sizeof bytes, 0));
    tell("nothing", recv(ends[1], bytes, sizeof bytes, 0));
    tell("bad shutdown", shutdown(ends[1], 7));
    return 0;
}
