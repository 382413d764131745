//! Programs with connections of both kinds, at user level and by the kernel.

use crate::fixture::Fixture;

fn same(name: &str) {
    let fixture = Fixture::new();
    let program = fixture.compile(name);
    let by_kernel = fixture.run(&program, false);
    let by_user = fixture.run(&program, true);
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
