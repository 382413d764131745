/* The example for programs that use millrace_sockets.h. */
#include "../../examples/table.c"
