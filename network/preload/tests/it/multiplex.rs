//! Programs that wait for several descriptors print the same at user level as by the kernel.

use crate::fixture::programs;

programs! {
    direct:
        wait_edges wait_forks wait_handlers wait_levels wait_moves wait_nested wait_polls wait_selects wait_server
        wait_signals wait_threads;
    by_forwarder:
        wait_forks wait_server wait_signals wait_threads
}
