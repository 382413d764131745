//! Programs print the same at user level as by the kernel.

mod bed;

use bed::programs;

programs! {
    direct:
        bulk copies duplicates echo full half_close inherit many names numbers options peek pipes
        reset streams timeouts urgent workers;
    by_plane:
        bulk copies duplicates echo full half_close inherit many names numbers options peek pipes
        reset streams timeouts urgent workers
}
