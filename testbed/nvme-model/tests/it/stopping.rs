//! What a controller does with memory between CC.EN = 0 or CSTS.CFS and CSTS.RDY = 0.

use millrace_nvme_model::{Fault, FaultRule, Faults, Options, Rule, Target, When};

use crate::host::{DATA, Host, command, set_prp};

/// Commands that are given before the controller is stopped.
const READS: u64 = 16;

fn rule(fault: Fault) -> Faults {
    Faults {
        rules: vec![FaultRule {
            target: Target::Io,
            when: When::Always,
            fault,
        }],
        ..Faults::default()
    }
}

fn options(seed: u64, fault: Fault) -> Options {
    Options {
        seed,
        ready_steps: 20,
        faults: rule(fault),
        ..Options::default()
    }
}

/// Gives reads of zeros to a page each, filled with ones before.
fn give_reads(host: &mut Host) {
    for page in 0..READS {
        let mut read = host.transfer(2, page, 1, 4096);
        let at = page_of(page);
        host.memory.store_u64(at, u64::MAX);
        set_prp(&mut read, host.address(at), 0);
        host.submit(1, read);
    }
    host.controller.step();
}

fn page_of(page: u64) -> usize {
    DATA + usize::try_from(page).expect("few pages") * 4096
}

/// How many reads have arrived; fills their pages anew.
fn arrived(host: &Host) -> usize {
    let pages = (0..READS).map(page_of);
    let arrived: Vec<usize> = pages.filter(|at| host.memory.load_u64(*at) == 0).collect();
    for at in &arrived {
        host.memory.store_u64(*at, u64::MAX);
    }
    arrived.len()
}

fn steps(host: &Host, count: usize) {
    for _ in 0..count {
        host.controller.step();
    }
}

#[test]
fn commands_go_on_until_the_controller_is_not_ready() {
    let (mut ended, mut silent) = (0, 0);
    for seed in 0..20 {
        let mut host = Host::ready(options(seed, Fault::Delay(1_000_000)));
        give_reads(&mut host);
        assert_eq!(arrived(&host), 0);
        host.set_register(0x14, 4 << 20 | 6 << 16);
        host.controller.step();
        steps(&host, 18);
        assert_eq!(host.register(0x1c), 1, "still ready");
        let read = arrived(&host);
        assert!(read > 0, "seed {seed}");
        // Without the doorbell, which is not to be rung any more.
        let posted = (0..READS).filter(|_| host.peek(1).is_some()).count();
        ended += posted;
        silent += read.saturating_sub(posted);
        host.wait(|host| host.register(0x1c) == 0);
        arrived(&host);
        steps(&host, 100);
        assert_eq!(arrived(&host), 0, "not ready, and not at work");
        host.assert_lawful();
        host.enable();
    }
    assert!(ended > 0 && silent > 0, "{ended} ended, {silent} did not");
}

#[test]
fn commands_that_were_announced_may_be_fetched_while_it_stops() {
    let mut fetched = 0;
    for seed in 0..20 {
        let mut host = Host::ready(Options {
            burst: 1,
            seed,
            ready_steps: 20,
            ..Options::default()
        });
        give_reads(&mut host);
        let before = host.controller.counters().commands;
        host.set_register(0x14, 4 << 20 | 6 << 16);
        host.wait(|host| host.register(0x1c) == 0);
        fetched += host.controller.counters().commands - before;
        host.assert_lawful();
    }
    assert!(fetched > 20 && fetched < 20 * (READS - 1), "{fetched}");
}

#[test]
fn a_doorbell_that_is_rung_while_it_stops_is_a_breach() {
    let mut host = Host::ready(options(0, Fault::Delay(5)));
    give_reads(&mut host);
    host.set_register(0x14, 4 << 20 | 6 << 16);
    host.controller.step();
    host.submit(1, command(0, 1));
    host.controller.step();
    assert_eq!(host.broken_rules(), [Rule::DoorbellWithoutQueue]);
}

#[test]
fn a_failed_controller_uses_memory_until_it_is_reset() {
    for seed in 0..20 {
        let mut host = Host::ready(options(seed, Fault::Lose));
        give_reads(&mut host);
        host.controller.set_faults(Faults {
            fatal_at: Some(host.controller.steps() + 1),
            ..Faults::default()
        });
        host.controller.step();
        assert_eq!(host.register(0x1c), 3);
        for _ in 0..3 {
            arrived(&host);
            steps(&host, 100);
            assert!(arrived(&host) > 0, "seed {seed}");
        }
        host.disable();
        arrived(&host);
        steps(&host, 100);
        assert_eq!(arrived(&host), 0);
        host.assert_lawful();
    }
}

#[test]
fn the_command_of_a_fatal_status_may_reach_its_memory() {
    let mut host = Host::ready(options(0, Fault::Fatal));
    give_reads(&mut host);
    steps(&host, 100);
    assert_eq!(host.register(0x1c), 3);
    assert_eq!(arrived(&host), 1, "the first; no other was fetched");
}

#[test]
fn one_that_cannot_be_disabled_is_stopped_by_a_reset_or_without_memory_access() {
    for reset in [true, false] {
        let mut host = Host::ready(options(0, Fault::Lose));
        give_reads(&mut host);
        host.controller.set_faults(Faults {
            never_disabled: true,
            ..Faults::default()
        });
        host.set_register(0x14, 4 << 20 | 6 << 16);
        for _ in 0..3 {
            arrived(&host);
            steps(&host, 1000);
            assert!(arrived(&host) > 0);
        }
        if reset {
            host.function.reset().unwrap();
        } else {
            host.function.set_bus_master(false).unwrap();
        }
        steps(&host, 1000);
        assert_eq!(arrived(&host), 0);
    }
}

#[test]
fn a_lost_command_may_reach_its_memory_late() {
    let mut host = Host::ready(options(0, Fault::Lose));
    give_reads(&mut host);
    let at_once = arrived(&host);
    let mut late = 0;
    for _ in 0..1024 {
        host.controller.step();
        late += arrived(&host);
    }
    steps(&host, 1000);
    assert_eq!(arrived(&host), 0, "once each");
    let (at_once, late) = (at_once as u64, late as u64);
    assert!(at_once > 0 && late > 0 && at_once + late < READS);
    assert!(host.poll(1).is_none());
    host.assert_lawful();
}

/// Unmaps all the host's memory while `prepare` has left the controller as it is.
fn unmap(options: Options, prepare: impl FnOnce(&mut Host)) -> Vec<Rule> {
    let mut host = Host::ready(options);
    prepare(&mut host);
    let controller = host.controller.clone();
    drop(host);
    let broken = controller.violations();
    broken.iter().map(|violation| violation.rule).collect()
}

#[test]
fn rings_may_be_unmapped_when_the_controller_cannot_reach_them() {
    let lawful: [fn(&mut Host); 6] = [
        Host::disable,
        |host| host.function.reset().unwrap(),
        |host| host.function.set_bus_master(false).unwrap(),
        |host| host.controller.remove(),
        |host| host.controller.power_cut(),
        |host| {
            host.disable();
            host.controller.set_faults(Faults {
                never_ready: true,
                ..Faults::default()
            });
            host.set_register(0x14, 4 << 20 | 6 << 16 | 1);
            steps(host, 100);
            host.set_register(0x14, 4 << 20 | 6 << 16);
        },
    ];
    for prepare in lawful {
        assert_eq!(unmap(Options::default(), prepare), []);
    }
    let breaches: [fn(&mut Host); 4] = [
        |_| {},
        |host| host.set_register(0x14, 4 << 20 | 6 << 16),
        |host| {
            host.set_register(0x14, 4 << 20 | 6 << 16);
            host.controller.step();
        },
        |host| {
            host.disable();
            host.set_register(0x14, 4 << 20 | 6 << 16 | 1);
            host.controller.step();
        },
    ];
    for prepare in breaches {
        assert_eq!(unmap(Options::default(), prepare), [Rule::UnmappedInUse]);
    }
    let fatal = |host: &mut Host| {
        host.submit(1, command(0, 1));
        host.controller.step();
    };
    assert_eq!(
        unmap(options(0, Fault::Fatal), fatal),
        [Rule::UnmappedInUse]
    );
}

/// Gives `command`, whose pointers are in other memory than the queues, and unmaps that memory.
fn unmap_apart(fault: Option<Fault>, steps_before: usize, is_list: bool) -> Vec<Rule> {
    let mut host = Host::ready(Options {
        faults: fault.map_or_else(Faults::default, rule),
        ..Options::default()
    });
    let apart = host.more_memory();
    let mut write = host.transfer(1, 0, 3, 4096);
    let first = apart.iova().0;
    if is_list {
        // Data where the queues are, the list apart.
        let data = host.address(DATA);
        apart.store_u64(0, data + 4096);
        apart.store_u64(8, data + 8192);
        set_prp(&mut write, data, first);
    } else {
        write[12] = 1;
        set_prp(&mut write, host.address(DATA), first);
    }
    host.submit(1, write);
    steps(&host, steps_before);
    drop(apart);
    host.broken_rules()
}

#[test]
fn lists_and_data_may_be_unmapped_when_their_command_has_ended() {
    for is_list in [true, false] {
        let unmap = |fault, steps| unmap_apart(fault, steps, is_list);
        assert_eq!(unmap(None, 0), [Rule::UnmappedInUse], "it was announced");
        assert_eq!(unmap(None, 1), [], "it has ended");
        let held = Some(Fault::Delay(100));
        assert_eq!(unmap(held, 1), [Rule::UnmappedInUse]);
        assert_eq!(unmap(held, 101), []);
        assert_eq!(unmap(Some(Fault::Lose), 5000), [Rule::UnmappedInUse]);
    }
}

#[test]
fn shadow_doorbells_stay_mapped() {
    let mut host = Host::ready(Options::default());
    let apart = host.more_memory();
    let first = apart.iova().0;
    let mut configure = command(0x7c, 0);
    set_prp(&mut configure, first, first + 4096);
    assert_eq!(host.admin(configure).status, 0);
    drop(apart);
    assert_eq!(host.broken_rules(), [Rule::UnmappedInUse]);
}
