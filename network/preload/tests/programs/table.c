/* The example for programs that know of user-level sockets. */
#include "../../examples/table.c"
