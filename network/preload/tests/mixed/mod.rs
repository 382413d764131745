//! Programs with connections of both kinds: by the kernel, too, where one is at user level.

use crate::bed::Bed;

fn same(name: &str) {
    let bed = Bed::new();
    let program = bed.compile(name);
    let by_kernel = bed.run(&program, false);
    let by_user = bed.run(&program, true);
    assert_eq!(by_user.text, by_kernel.text, "{name}");
    let totals = by_user.totals;
    assert!(totals.counter("connects") > 0, "{name}: {totals:?}");
}

#[test]
fn acceptors() {
    same("acceptors");
}

#[test]
fn leased() {
    same("leased");
}

#[test]
fn shares() {
    same("shares");
}
