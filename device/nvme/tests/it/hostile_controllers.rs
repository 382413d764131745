//! A short deterministic run of the fuzz target `nvme_controller`.

use crate::exercise_controller::drive;
use millrace_fixtures::count;
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};

#[test]
fn any_controller() {
    let config = ProptestConfig {
        cases: count(500, 1_500),
        failure_persistence: None,
        max_shrink_iters: 2_000,
        ..ProptestConfig::default()
    };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    // Zeroes stand for a controller that does what it should.
    let byte = prop_oneof![Just(0_u8), any::<u8>()];
    TestRunner::new_with_rng(config, rng)
        .run(&prop::collection::vec(byte, 0..400), |bytes| {
            drive(&bytes);
            Ok(())
        })
        .expect("no controller makes the driver misbehave");
}
