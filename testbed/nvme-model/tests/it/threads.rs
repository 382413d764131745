//! The controller on a thread of its own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use millrace_nvme_model::{Options, Rule};

use crate::host::{ENTRIES, Host, command};

#[test]
fn steps_on_another_thread() {
    drive(Options::default());
}

#[test]
fn doorbells_may_be_mapped() {
    let options = Options {
        mapped_doorbells: true,
        doorbell_stride: 1,
        ..Options::default()
    };
    let host = Host::ready(options.clone());
    host.ring(4, 1);
    for _ in 0..256 {
        host.controller.step();
    }
    assert_eq!(host.broken_rules(), [Rule::DoorbellWithoutQueue]);
    drive(options);
}

/// Keeps many flushes in flight while another thread steps.
fn drive(options: Options) {
    let mut host = Host::ready(options);
    let controller = host.controller.clone();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                if controller.step() == 0 {
                    thread::yield_now();
                }
            }
        });
        let mut in_flight = 0;
        let mut ended = 0_u32;
        while ended < 20_000 {
            while in_flight < ENTRIES / 2 {
                host.submit(1, command(0, 1));
                in_flight += 1;
            }
            while let Some(completion) = host.poll(1) {
                assert_eq!(completion.status, 0);
                in_flight -= 1;
                ended += 1;
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    host.assert_lawful();
}
