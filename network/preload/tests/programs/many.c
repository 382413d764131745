/* sendmmsg, recvmmsg, sendmsg with pieces. */
#include "fixture.h"

int main(void)
{
    int ends[2];
    char in[4][8], all[64];
    join(ends);
    struct iovec out[3] = {{"one", 3}, {"two", 3}, {"three", 5}};
    struct mmsghdr messages[3] = {0};
    for (int number = 0; number < 3; number++) {
        messages[number].msg_hdr.msg_iov = &out[number];
        messages[number].msg_hdr.msg_iovlen = 1;
    }
    tell("sendmmsg", sendmmsg(ends[0], messages, 3, 0));
    printf("%u %u %u\n", messages[0].msg_len, messages[1].msg_len, messages[2].msg_len);
    await(ends[1], 11);
    struct mmsghdr room[4] = {0};
    struct iovec into[4];
    for (int number = 0; number < 4; number++) {
        into[number] = (struct iovec){in[number], 4};
        room[number].msg_hdr.msg_iov = &into[number];
        room[number].msg_hdr.msg_iovlen = 1;
    }
    tell("recvmmsg", recvmmsg(ends[1], room, 4, MSG_WAITFORONE, NULL));
    printf("%u %u %u\n", room[0].msg_len, room[1].msg_len, room[2].msg_len);
    struct msghdr message = {.msg_iov = out, .msg_iovlen = 3};
    tell("sendmsg", sendmsg(ends[0], &message, 0));
    await(ends[1], 11);
    tell("recv", recv(ends[1], all, sizeof all, 0));
    printf("%.11s\n", all);
    struct msghdr wrong = {.msg_iov = NULL, .msg_iovlen = 3};
    tell("no pieces", sendmsg(ends[0], &wrong, 0));
    wrong.msg_iovlen = 5000;
    wrong.msg_iov = out;
    tell("too many", sendmsg(ends[0], &wrong, 0));
    volatile int negative = -1;
    tell("negative", writev(ends[0], out, negative));
    tell("urgent", send(ends[0], "x", 0, 0));
    return 0;
}
