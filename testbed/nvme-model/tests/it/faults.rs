//! What goes wrong when it is asked to.

use millrace_nvme_model::{
    Counters, Fault, FaultRule, Faults, IdentifyLie, Options, Rule, Status, Target, When,
};
use proptest::prelude::*;

use crate::host::{Completion, DATA, ENTRIES, Host, command};

fn with(target: Target, when: When, fault: Fault) -> Options {
    Options {
        faults: Faults {
            rules: vec![FaultRule {
                target,
                when,
                fault,
            }],
            ..Faults::default()
        },
        ..Options::default()
    }
}

#[test]
fn the_nth_command_fails() {
    let status = Status::WRITE_FAULT.do_not_retry();
    let mut host = Host::ready(with(Target::IoOpcode(1), When::Nth(3), Fault::Fail(status)));
    let read = host.transfer(2, 0, 1, 4096);
    let write = host.transfer(1, 0, 1, 4096);
    let codes: Vec<u16> = [write, read, write, write, write]
        .map(|command| host.run(1, command).status)
        .to_vec();
    assert_eq!(codes, [0, 0, 0, 0x4280, 0]);
    host.assert_lawful();
}

#[test]
fn completions_overtake_each_other() {
    let mut host = Host::ready(with(Target::Io, When::Always, Fault::Reorder(20)));
    let sent: Vec<u16> = (0..50).map(|_| host.submit(1, command(0, 1))).collect();
    let mut ended: Vec<u16> = (0..50).map(|_| host.next(1).id).collect();
    assert_ne!(sent, ended);
    ended.sort_unstable();
    assert_eq!(sent, ended);
    host.assert_lawful();
}

#[test]
fn a_lost_command_never_ends() {
    let mut host = Host::ready(with(Target::Io, When::Nth(1), Fault::Lose));
    host.submit(1, command(0, 1));
    let second = host.submit(1, command(0, 1));
    assert_eq!(host.next(1).id, second);
    for _ in 0..1000 {
        host.controller.step();
    }
    assert!(host.poll(1).is_none());
    host.assert_lawful();
}

#[test]
fn fatal_status_stops_everything_until_reset() {
    let mut host = Host::ready(with(Target::Io, When::Nth(1), Fault::Fatal));
    host.submit(1, command(0, 1));
    host.controller.step();
    assert_eq!(host.register(0x1c) & 2, 2);
    host.submit(0, command(0x0c, 0));
    assert_eq!(host.controller.step(), 0);
    host.disable();
    host.enable();
    host.create_queues(1);
    assert_eq!(host.run(1, command(0, 1)).status, 0);
    host.assert_lawful();
}

#[test]
fn a_removed_function_reads_as_all_ones() {
    let mut host = Host::ready(with(Target::Io, When::Nth(2), Fault::Remove));
    assert_eq!(host.run(1, command(0, 1)).status, 0);
    host.submit(1, command(0, 1));
    host.controller.step();
    assert_eq!(host.register(0x1c), u32::MAX);
    assert!(!host.function.is_present());
    assert_eq!(host.controller.step(), 0);
    assert!(host.poll(1).is_none());
    host.controller.insert();
    assert!(host.function.is_present());
    host.function.set_bus_master(true).unwrap();
    host.enable();
    host.create_queues(1);
    assert_eq!(host.run(1, command(0, 1)).status, 0);
}

#[test]
fn never_ready() {
    let mut options = Options::default();
    options.faults.never_ready = true;
    let host = Host::new(options);
    host.set_register(0x24, 63 << 16 | 63);
    host.set_register(0x14, 4 << 20 | 6 << 16 | 1);
    for _ in 0..1000 {
        host.controller.step();
    }
    assert_eq!(host.register(0x1c), 0);
    // Giving it up is no breach.
    host.set_register(0x14, 4 << 20 | 6 << 16);
    host.controller.step();
    host.assert_lawful();
}

#[test]
fn never_shut_down() {
    let mut host = Host::ready(Options::default());
    let write = host.transfer(1, 0, 1, 4096);
    assert_eq!(host.run(1, write).status, 0);
    host.controller.set_faults(Faults {
        never_shut_down: true,
        ..Faults::default()
    });
    host.set_register(0x14, 1 << 14 | 4 << 20 | 6 << 16 | 1);
    for _ in 0..1000 {
        host.controller.step();
    }
    assert_eq!(host.shutdown_status(), 1, "it occurs");
    assert_eq!(host.controller.unflushed(1).unwrap(), 1, "nothing is kept");
    // It can be reset all the same, and shuts down when nothing is wrong with it.
    host.disable();
    host.controller.set_faults(Faults::default());
    host.enable();
    assert_eq!(host.shutdown_status(), 0);
    host.set_register(0x14, 1 << 14 | 4 << 20 | 6 << 16 | 1);
    host.wait(|host| host.shutdown_status() == 2);
    assert_eq!(host.controller.unflushed(1).unwrap(), 0);
    host.assert_lawful();
}

#[test]
fn reset_at() {
    let mut host = Host::ready(with(Target::Io, When::Always, Fault::Delay(20)));
    host.submit(1, command(0, 1));
    host.controller.step();
    host.controller.set_faults(Faults {
        reset_at: Some(host.controller.steps() + 10),
        ..Faults::default()
    });
    for _ in 0..9 {
        host.controller.step();
    }
    assert_eq!(host.register(0x1c), 1);
    host.controller.step();
    // CC, CSTS, AQA, ASQ and ACQ are as after power-on.
    for register in [0x14, 0x1c, 0x24, 0x28, 0x2c, 0x30, 0x34] {
        assert_eq!(host.register(register), 0, "{register:#x}");
    }
    for _ in 0..100 {
        host.controller.step();
    }
    assert!(host.poll(1).is_none(), "what was in flight is forgotten");
    host.assert_lawful();
    host.submit(1, command(0, 1));
    host.controller.step();
    assert_eq!(host.broken_rules(), [Rule::DoorbellWithoutQueue]);
    host.enable();
    host.create_queues(1);
    assert_eq!(host.run(1, command(0, 1)).status, 0, "once only");
    host.assert_lawful();
}

#[test]
fn fatal_at() {
    let mut host = Host::ready(Options::default());
    host.controller.set_faults(Faults {
        fatal_at: Some(host.controller.steps() + 10),
        ..Faults::default()
    });
    for _ in 0..9 {
        assert_eq!(host.run(1, command(0, 1)).status, 0);
    }
    host.submit(1, command(0, 1));
    for _ in 0..100 {
        host.controller.step();
    }
    assert_eq!(host.register(0x1c), 3, "ready and fatal");
    assert!(host.poll(1).is_none(), "no command is fetched any more");
    host.disable();
    assert_eq!(host.register(0x1c), 0);
    host.enable();
    host.create_queues(1);
    assert_eq!(host.run(1, command(0, 1)).status, 0, "once only");
    host.assert_lawful();
}

#[test]
fn scheduled_faults_come_at_their_step() {
    let mut host = Host::ready(Options::default());
    let now = host.controller.steps();
    host.controller.set_faults(Faults {
        fatal_at: Some(now + 2),
        remove_at: Some(now + 4),
        ..Faults::default()
    });
    host.controller.step();
    assert_eq!(host.register(0x1c), 1);
    host.controller.step();
    assert_eq!(host.register(0x1c), 3);
    host.controller.step();
    host.controller.step();
    assert_eq!(host.register(0x1c), u32::MAX);
    host.controller.insert();
    host.controller.set_faults(Faults {
        reset_at: Some(host.controller.steps() + 50),
        ..Faults::default()
    });
    host.function.set_bus_master(true).unwrap();
    host.enable();
    for _ in 0..50 {
        host.controller.step();
    }
    assert_eq!((host.register(0x14), host.register(0x1c)), (0, 0));
}

#[test]
fn identify_and_capabilities_lie() {
    let mut options = Options::default();
    options.faults.capabilities_clear = 0xffff;
    options.faults.capabilities_set = 15 << 48;
    options.faults.identify = vec![IdentifyLie {
        cns: 1,
        offset: 516,
        bytes: vec![0xff; 4],
    }];
    options.faults.identify_random = Some(0);
    let mut host = Host::ready(options);
    assert_eq!(host.register(0) & 0xffff, 0, "MQES");
    assert_eq!(host.register(4) >> 16 & 0xf, 15, "MPSMIN");
    host.identify(1, 0);
    assert_eq!(host.memory.load_u32(DATA + 516), u32::MAX);
    host.identify(0, 1);
    assert_ne!(host.memory.load_u64(DATA + 3000), 0);
}

/// Completes flushes on queue 1 under a fault that strikes the second; returns what the host sees.
fn hostile(fault: Fault) -> Vec<Completion> {
    let mut host = Host::ready(with(Target::Io, When::Nth(2), fault));
    assert_eq!(host.run(1, command(0, 1)).status, 0);
    host.submit(1, command(0, 1));
    host.controller.step();
    std::iter::from_fn(|| host.poll(1)).take(200).collect()
}

#[test]
fn hostile_completions() {
    let seen = hostile(Fault::WrongId);
    assert!(seen.len() == 1 && seen[0].id != 8, "{seen:?}");
    assert_eq!(hostile(Fault::IdOutOfRange)[0].id, u16::MAX);
    assert!(u32::from(hostile(Fault::HeadBeyond)[0].head) >= ENTRIES);
    assert_ne!(hostile(Fault::WrongQueue)[0].queue, 1);
    let twice = hostile(Fault::CompleteTwice);
    assert!(twice.len() == 2 && twice[0].id == twice[1].id);
    assert!(hostile(Fault::Garbage).len() > 1);
    let entries = usize::try_from(ENTRIES).unwrap();
    assert_eq!(hostile(Fault::Overwrite).len(), entries);
    assert_eq!(hostile(Fault::Forget).len(), 1);
}

#[test]
fn completions_that_nobody_asked_for() {
    let mut host = Host::ready(Options::default());
    host.controller.set_faults(Faults {
        unasked: 3,
        ..Faults::default()
    });
    for _ in 0..100 {
        host.controller.step();
    }
    assert!(host.poll(1).is_some());
}

/// Some commands under many faults; what the host saw, and what the controller counted.
fn run(seed: u64) -> (Vec<Completion>, u64, Counters) {
    let rule = |period, fault| FaultRule {
        target: Target::Io,
        when: When::OneIn(period),
        fault,
    };
    let mut host = Host::ready(Options {
        seed,
        faults: Faults {
            rules: vec![
                rule(5, Fault::Reorder(9)),
                rule(11, Fault::Fail(Status::INTERNAL)),
                rule(17, Fault::Lose),
            ],
            ..Faults::default()
        },
        ..Options::default()
    });
    let mut seen = Vec::new();
    for number in 0..200 {
        host.fill(4096, number);
        let opcode = if number % 3 == 0 { 2 } else { 1 };
        let transfer = host.transfer(opcode, number * 7 % 32, 1, 4096);
        host.submit(1, transfer);
        host.controller.step();
        seen.extend(host.poll(1));
    }
    host.controller.power_cut();
    let digest = host.controller.digest(1).expect("namespace 1");
    (seen, digest, host.controller.counters())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn everything_follows_from_the_seed(seed: u64) {
        prop_assert_eq!(run(seed), run(seed));
    }
}
