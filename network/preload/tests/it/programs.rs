//! Programs print the same at user level as by the kernel.

use crate::fixture::programs;

// Programs that rely on loopback, where a call has done all its work when it returns, are left out with a forwarder.
programs! {
    direct:
        bulk cancels copies dup_closes duplicates echo exhausted forks full half_close in_place inherit
        killed many meets meets_copies names numbers options over peek pipes reservations reset rights wakeups service
        spawns splices streams table timeouts urgent urgent_waits workers;
    by_forwarder:
        bulk cancels copies echo exhausted forks in_place inherit killed many meets meets_copies names numbers options over
        peek pipes reservations reset rights wakeups service spawns splices streams table timeouts urgent_waits
        workers
}
