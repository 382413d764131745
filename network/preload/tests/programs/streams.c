/* Streams of the C library on a connection. */
#include "fixture.h"

int main(void)
{
    int ends[2];
    char line[64];
    join(ends);
    FILE *in = fdopen(ends[1], "r"), *out = fdopen(dup(ends[0]), "w");
    CHECK(in && out);
    fprintf(out, "one %d\ntwo\n", 1);
    tell("flush", fflush(out));
    while (fgets(line, sizeof line, in) && strcmp(line, "two\n"))
        printf("%s", line);
    fprintf(out, "three");
    tell("close", fclose(out));
    close(ends[0]);
    CHECK(fgets(line, sizeof line, in));
    printf("%s\n", line);
    printf("end %d %d\n", fgets(line, sizeof line, in) == NULL, feof(in) != 0);
    tell("close", fclose(in));
    tell("closed", close(ends[1]));
    return 0;
}
