//! A power cut at every event of random histories, with images that a disk could hold; and that none of the places
//! at which data is put on the medium can be left out.

mod campaign;
mod threads;

use campaign::Campaign;
use millrace_blobfs::{Barrier, mutation};
use millrace_fixtures::seeds;

use crate::history::Cause;

/// Seeds of which the campaigns have a scattered checkpoint.
const SCATTERED: [u64; 2] = [4, 12];

#[test]
fn whatever_a_disk_holds_after_a_power_cut_what_was_synced_is_there() {
    mutation::leave_out(None);
    let mut images = 0;
    // Seed 4 has a scattered checkpoint.
    let seeds = seeds(0..6);
    for seed in seeds.clone() {
        let outcome = Campaign::new(seed).checked().cut_at_every(4);
        images += outcome.images;
        if let Some(fault) = outcome.fault {
            panic!("{fault}");
        }
    }
    println!("{images} images");
    assert!(images > 125 * seeds.count(), "{images} images");
}

/// What is lost without a barrier.
fn loss_without(barrier: Barrier) -> &'static [Cause] {
    match barrier {
        // A file has the size that was synced, and other bytes.
        Barrier::DataBeforeTransaction => &[Cause::Contents],
        Barrier::Transaction => &[Cause::Contents, Cause::Names],
        // A superblock names a checkpoint that is not there.
        Barrier::Checkpoint => &[Cause::NoMetadata],
        // Both are torn; or one, while the other cannot be read or names what was written over.
        Barrier::FirstSuperblock => &[Cause::NoSuperblock],
        Barrier::SecondSuperblock => &[Cause::NoSuperblock, Cause::NoMetadata, Cause::Contents],
    }
}

/// In a process of its own for each barrier, since the switch is the process's.
#[test]
#[ignore = "mutation check: `make soak` runs it"]
fn no_barrier_can_be_left_out() {
    if let Ok(name) = std::env::var("MILLRACE_LEFT_OUT") {
        let mut all = Barrier::ALL.into_iter();
        let barrier = all.find(|barrier| format!("{barrier:?}") == name);
        leave_out(barrier.expect("the name of a barrier"));
        return;
    }
    for barrier in Barrier::ALL {
        let this = std::env::current_exe().expect("a test has a path");
        let mut child = std::process::Command::new(this);
        child.args([
            "--exact",
            "power_cut::no_barrier_can_be_left_out",
            "--ignored",
            "--nocapture",
        ]);
        let output = child.env("MILLRACE_LEFT_OUT", format!("{barrier:?}"));
        let output = output.output().expect("it runs");
        let text = String::from_utf8_lossy(&output.stdout);
        let is_about = |line: &&str| line.starts_with(&format!("{barrier:?}"));
        let found = text.lines().filter(is_about).collect::<String>();
        println!("{found}");
        assert!(
            output.status.success() && !found.is_empty(),
            "{barrier:?}: {text}"
        );
    }
}

fn leave_out(barrier: Barrier) {
    mutation::leave_out(Some(barrier));
    // Only a superblock of several blocks can be torn.
    let first: &[u64] = match barrier {
        Barrier::FirstSuperblock => &SCATTERED,
        _ => &[],
    };
    let mut seeds = first.iter().copied().chain(0..60);
    let fault = seeds.find_map(|seed| Campaign::new(seed).cut_at_every(1).fault);
    let fault = fault.unwrap_or_else(|| panic!("{barrier:?} can be left out"));
    println!("{barrier:?}: {fault}");
    let expected = loss_without(barrier);
    assert!(
        expected.contains(&fault.fault.cause),
        "{barrier:?}: {expected:?} was expected: {fault}"
    );
}
