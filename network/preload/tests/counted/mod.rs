//! How calls wait, by what they do: sleeps and rings are counted, times are not.

use crate::bed::Bed;

/// A thread that yields to one which computes gets the processor back when that one's slice ends; one that sleeps gets
/// it when its peer rings.
#[test]
fn nobody_yields_to_a_thread_that_computes() {
    let bed = Bed::new();
    let run = bed.run(&bed.compile("hogged"), true);
    assert_eq!(run.text, "trips: 300\nexit status: 0");
    let totals = run.totals;
    let [sleeps, bells] = ["sleeps", "bells"].map(|name| totals.counter(name));
    // Each trip waits twice. Some of the waits are tries.
    assert!(sleeps >= 300, "{totals:?}");
    assert!(bells <= sleeps + 8, "{totals:?}");
}
