//! Controllers that fail, lie or vanish: every request still ends once, with an error or what it asked for,
//! and nothing panics.

use std::collections::HashMap;
use std::time::Duration;

use crate::fixture::{Fixture, Outcome, PATIENCE, arena, filled, polled, quick, single};
use millrace_fixtures::seeds;
use millrace_nvme::{
    CommandError, Condition, Data, ErrorKind, Host, Lba, Options, Recovery, Request,
};
use millrace_nvme_model as model;
use model::{Fault, FaultRule, Faults, IdentifyLie, Target, When};

fn rule(target: Target, when: When, fault: Fault) -> Faults {
    Faults {
        rules: vec![FaultRule {
            target,
            when,
            fault,
        }],
        ..Faults::default()
    }
}

fn small(seed: u64) -> model::Options {
    model::Options {
        seed,
        namespaces: vec![model::NamespaceOptions {
            block_size: 512,
            blocks: 4096,
            ..model::NamespaceOptions::default()
        }],
        ..model::Options::default()
    }
}

/// What became of a run of requests.
#[derive(Debug, Default)]
struct Tally {
    succeeded: u32,
    failed: u32,
    not_accepted: u32,
    /// Data that was not given back.
    given_up: u32,
    /// Why there were no requests at all.
    refused: Option<ErrorKind>,
    recovery: Recovery,
}

/// Writes and reads blocks while faults strike, several requests at a time. A block is named by one request
/// at a time. Reads that succeed must find what was written last, as far as that write succeeded.
fn exercise(
    fixture: &Fixture,
    options: Options,
    rounds: u64,
) -> Result<Tally, Box<dyn std::error::Error>> {
    let mut tally = Tally::default();
    let controller = match fixture.open(options) {
        Ok(controller) => controller,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            tally.refused = Some(error.kind());
            return Ok(tally);
        }
    };
    let made = controller.namespace(1);
    let made = made.and_then(|namespace| Ok((namespace, polled(&controller, 8)?)));
    let (namespace, mut pair) = match made {
        Ok(made) => made,
        Err(error) => {
            tally.refused = Some(error.kind());
            tally.recovery = controller.recovery();
            return Ok(tally);
        }
    };
    let arena = arena(&controller)?;
    let mut known: HashMap<u64, Option<u8>> = HashMap::new();
    let start = fixture.host.now();
    for round in 0..rounds {
        let byte = u8::try_from(round % 250 + 1)?;
        let mut requests_in_flight = HashMap::new();
        for place in 0..8 {
            let (lba, write) = (place * 16, (round + place) % 3 != 0);
            let (request, len) = if write {
                (
                    Request::write(Lba(lba), filled(&arena, 16 * 512, byte)?, lba),
                    16 * 512,
                )
            } else {
                (
                    Request::read(Lba(lba), filled(&arena, 512, 0xee)?, lba),
                    512,
                )
            };
            match pair.submit(&namespace, request) {
                Ok(()) => {
                    requests_in_flight.insert(lba, (write, len));
                }
                Err(_) => tally.not_accepted += 1,
            }
        }
        while pair.requests_in_flight() > 0 {
            let spent = fixture.host.now().saturating_sub(start);
            assert!(spent < PATIENCE, "requests do not end: {pair:?}");
            pair.wait(Duration::from_secs(1), |completion| {
                let (write, len) = requests_in_flight
                    .remove(&completion.token)
                    .expect("a request ends once, with its token");
                let buffer = completion.data.and_then(Data::into_buffer);
                tally.given_up += u32::from(buffer.is_none());
                match completion.result {
                    Err(_) => tally.failed += 1,
                    Ok(()) => tally.succeeded += 1,
                }
                if write {
                    let content = completion.result.is_ok().then_some(byte);
                    known.insert(completion.token, content);
                    return;
                }
                let Some(buffer) = buffer else { return };
                assert_eq!(buffer.len(), len);
                let expected = known.get(&completion.token).copied();
                if let (Ok(()), Some(Some(byte))) = (completion.result, expected) {
                    assert_eq!(buffer[..], [byte; 512], "block {}", completion.token);
                }
            });
        }
        assert!(
            requests_in_flight.is_empty(),
            "all that was accepted has ended"
        );
    }
    tally.recovery = controller.recovery();
    Ok(tally)
}

#[test]
fn commands_that_fail_are_sent_again_or_say_why() -> Outcome {
    let internal = model::Status::INTERNAL;
    let fixture = Fixture::new(small(1))?;
    let controller = fixture.open(quick())?;
    let namespace = controller.namespace(1)?;
    let (arena, mut pair) = (arena(&controller)?, polled(&controller, 8)?);
    let mut read = || {
        single(
            &mut pair,
            &namespace,
            Request::read(Lba(0), filled(&arena, 512, 0)?, 0),
        )
    };
    fixture
        .model
        .set_faults(rule(Target::Io, When::Nth(1), Fault::Fail(internal)));
    assert_eq!(read()?.result, Ok(()), "once does not matter");
    fixture
        .model
        .set_faults(rule(Target::Io, When::Always, Fault::Fail(internal)));
    let failed = read()?;
    assert!(matches!(failed.result, Err(CommandError::Status(status)) if status.code() == 0x06));
    assert!(failed.data.is_some(), "the buffer comes back");
    let reads = fixture.model.counters().commands;
    let last = internal.do_not_retry();
    fixture
        .model
        .set_faults(rule(Target::Io, When::Always, Fault::Fail(last)));
    assert!(read()?.result.is_err());
    assert_eq!(
        fixture.model.counters().commands - reads,
        1,
        "it says not to send it again"
    );
    assert_eq!(controller.resets(), 0);
    Ok(())
}

#[test]
fn a_lost_command_is_aborted_then_the_controller_is_reset_and_it_is_sent_again() -> Outcome {
    let fixture = Fixture::new(small(2))?;
    let controller = fixture.open(quick())?;
    let namespace = controller.namespace(1)?;
    let (arena, mut pair) = (arena(&controller)?, polled(&controller, 8)?);
    fixture
        .model
        .set_faults(rule(Target::Io, When::Nth(1), Fault::Lose));
    let read = single(
        &mut pair,
        &namespace,
        Request::read(Lba(0), filled(&arena, 512, 0)?, 0),
    )?;
    assert_eq!(read.result, Ok(()));
    fixture
        .model
        .set_faults(rule(Target::Io, When::Always, Fault::Lose));
    let read = single(
        &mut pair,
        &namespace,
        Request::read(Lba(0), filled(&arena, 512, 0)?, 0),
    )?;
    assert_eq!(read.result, Err(CommandError::TimedOut));
    assert!(
        read.data.is_some(),
        "after a reset the controller does not reach it"
    );
    fixture.model.set_faults(Faults::default());
    let read = single(
        &mut pair,
        &namespace,
        Request::read(Lba(0), filled(&arena, 512, 0)?, 0),
    )?;
    assert_eq!(read.result, Ok(()), "it works again");
    assert_eq!(fixture.model.violations(), []);
    Ok(())
}

/// Reads that take longer than a command may are aborted, which needs no reset.
#[test]
fn a_command_that_takes_too_long_is_aborted() -> Outcome {
    let late = Fault::Delay(1_000_000);
    // Each is sent four times, if it has to be.
    for (when, result, aborts) in [
        (When::Nth(1), Ok(()), 1),
        (When::Always, Err(CommandError::TimedOut), 4),
    ] {
        let fixture = Fixture::new(small(2))?;
        let controller = fixture.open(quick())?;
        let namespace = controller.namespace(1)?;
        let (arena, mut pair) = (arena(&controller)?, polled(&controller, 8)?);
        fixture.model.set_faults(rule(Target::Io, when, late));
        let before = fixture.model.counters().commands;
        let request = Request::read(Lba(0), filled(&arena, 512, 0)?, 0);
        let read = single(&mut pair, &namespace, request)?;
        assert_eq!(read.result, result);
        assert!(read.data.is_some(), "its queue has lost it");
        let sent = if result.is_ok() { 2 } else { 4 };
        let expected = Recovery {
            resets: 0,
            aborts,
            retries: sent - 1,
        };
        assert_eq!(controller.recovery(), expected);
        let commands = fixture.model.counters().commands - before;
        assert_eq!(commands, sent + aborts, "the model has seen them all");
        assert_eq!(fixture.model.violations(), []);
    }
    Ok(())
}

#[test]
fn a_fatal_status_leads_to_a_reset() -> Outcome {
    let fixture = Fixture::new(small(3))?;
    let controller = fixture.open(quick())?;
    let namespace = controller.namespace(1)?;
    let (arena, mut pair) = (arena(&controller)?, polled(&controller, 8)?);
    fixture
        .model
        .set_faults(rule(Target::Io, When::Nth(1), Fault::Fatal));
    let read = single(
        &mut pair,
        &namespace,
        Request::read(Lba(0), filled(&arena, 512, 0)?, 0),
    )?;
    assert_eq!(read.result, Ok(()), "sent again after the reset");
    assert_eq!(controller.resets(), 1);
    assert_eq!(fixture.model.violations(), []);
    Ok(())
}

#[test]
fn a_controller_that_is_pulled_out_ends_everything() -> Outcome {
    for nth in 1..20 {
        let fixture = Fixture::new(small(nth))?;
        let controller = fixture.open(quick())?;
        let namespace = controller.namespace(1)?;
        let (arena, mut pair) = (arena(&controller)?, polled(&controller, 8)?);
        fixture
            .model
            .set_faults(rule(Target::Io, When::Nth(nth), Fault::Remove));
        let mut results = Vec::new();
        for _ in 0..20 {
            let request = Request::read(Lba(0), filled(&arena, 512, 0)?, 0);
            if pair.submit(&namespace, request).is_err() {
                break;
            }
            pair.wait(PATIENCE, |completion| {
                assert!(completion.data.is_some());
                results.push(completion.result);
            });
        }
        assert_eq!(results.len() as u64, nth);
        assert_eq!(results.pop(), Some(Err(CommandError::Gone)));
        assert_eq!(controller.condition(), Condition::Gone);
        assert_eq!(
            controller.health().err().map(|error| error.kind()),
            Some(ErrorKind::Gone)
        );
        drop(pair);
        drop(controller);
        fixture.model.insert();
        fixture.model.set_faults(Faults::default());
        fixture.open(quick())?;
    }
    Ok(())
}

#[test]
fn hostile_completions_end_in_errors() -> Outcome {
    let faults = [
        Fault::WrongId,
        Fault::IdOutOfRange,
        Fault::CompleteTwice,
        Fault::HeadBeyond,
        Fault::WrongQueue,
        Fault::Garbage,
        Fault::Overwrite,
        Fault::Lose,
        Fault::Fatal,
        Fault::Remove,
        Fault::Reorder(20),
        Fault::Delay(30),
        Fault::Fail(model::Status::READ_ERROR),
    ];
    for fault in faults {
        for (when, resets_max) in [
            (When::Nth(5), 2),
            (When::OneIn(9), u64::MAX),
            (When::Always, u64::MAX),
        ] {
            for seed in seeds(0..2) {
                let fixture = Fixture::new(small(seed))?;
                let controller = fixture.open(quick())?;
                drop(controller);
                fixture.model.set_faults(rule(Target::Io, when, fault));
                let tally = exercise(&fixture, quick(), 12)?;
                println!("{fault:?}, {when:?}, seed {seed}: {tally:?}");
                if resets_max == 2 && fault != Fault::Remove {
                    assert!(tally.succeeded > 80, "{fault:?} once: {tally:?}");
                }
                assert_eq!(tally.given_up, 0, "{fault:?}, {when:?}, seed {seed}");
                let harmful = fixture.model.violations();
                assert!(
                    harmful.is_empty(),
                    "{fault:?}, {when:?}, seed {seed}: {harmful:?}"
                );
                assert_eq!(fixture.model.dma_faults(), []);
            }
        }
    }
    Ok(())
}

#[test]
fn faults_of_admin_commands_end_in_errors() -> Outcome {
    let faults = [
        Fault::WrongId,
        Fault::IdOutOfRange,
        Fault::CompleteTwice,
        Fault::HeadBeyond,
        Fault::WrongQueue,
        Fault::Garbage,
        Fault::Lose,
        Fault::Fatal,
        Fault::Remove,
        Fault::Forget,
        Fault::Fail(model::Status::INVALID_FIELD.do_not_retry()),
    ];
    for fault in faults {
        let mut noticed = 0;
        for nth in 1..14 {
            let fixture = Fixture::new(model::Options {
                faults: rule(Target::Admin, When::Nth(nth), fault),
                ..small(nth)
            })?;
            let tally = exercise(&fixture, quick(), 3)?;
            println!("{fault:?} of admin command {nth}: {tally:?}");
            // It was not opened, or used; or it was reset, perhaps while it was being opened.
            let was_reset = tally.recovery.resets > 0 || fixture.model.counters().enables > 1;
            noticed += u32::from(tally.refused.is_some() || was_reset);
            if tally.refused.is_none() && fault != Fault::Remove {
                assert_eq!(
                    tally.not_accepted, 0,
                    "{fault:?} of admin command {nth}: {tally:?}"
                );
            }
            assert_eq!(
                fixture.model.dma_faults(),
                [],
                "{fault:?} of admin command {nth}"
            );
        }
        // Eight come before the requests. Some of them may be refused, or do nothing, without harm.
        let least = match fault {
            Fault::Fail(_) | Fault::Forget => 4,
            _ => 8,
        };
        assert!(noticed >= least, "{fault:?}: {noticed}");
    }
    Ok(())
}

#[test]
fn completions_that_nobody_asked_for_end_in_resets() -> Outcome {
    for seed in 0..10 {
        let fixture = Fixture::new(model::Options {
            faults: Faults {
                unasked: 4,
                ..Faults::default()
            },
            ..small(seed)
        })?;
        let tally = exercise(&fixture, quick(), 20)?;
        println!("seed {seed}: {tally:?}");
        assert!(tally.recovery.resets > 0, "seed {seed}: {tally:?}");
        assert!(tally.succeeded > 0, "seed {seed}: {tally:?}");
    }
    Ok(())
}

#[test]
fn controllers_that_never_get_ready_are_not_waited_for_without_end() -> Outcome {
    for (faults, kind) in [
        (
            Faults {
                never_ready: true,
                ..Faults::default()
            },
            ErrorKind::TimedOut,
        ),
        (
            Faults {
                remove_at: Some(3),
                ..Faults::default()
            },
            ErrorKind::Gone,
        ),
    ] {
        let fixture = Fixture::new(model::Options { faults, ..small(1) })?;
        let error = fixture.open(quick()).err().ok_or("it was opened")?;
        assert_eq!(error.kind(), kind, "{error}");
        assert!(fixture.host.now() < PATIENCE);
    }
    Ok(())
}

#[test]
fn a_controller_that_cannot_be_disabled_fails_and_keeps_no_memory_it_may_reach() -> Outcome {
    let fixture = Fixture::new(small(4))?;
    let controller = fixture.open(quick())?;
    let namespace = controller.namespace(1)?;
    let (arena, mut pair) = (arena(&controller)?, polled(&controller, 8)?);
    fixture.model.set_faults(Faults {
        never_disabled: true,
        ..rule(Target::Io, When::Always, Fault::Lose)
    });
    let read = single(
        &mut pair,
        &namespace,
        Request::read(Lba(0), filled(&arena, 512, 0)?, 0),
    )?;
    assert!(read.result.is_err(), "{read:?}");
    assert_eq!(fixture.model.dma_faults(), []);
    Ok(())
}

#[test]
fn identify_data_may_be_anything() -> Outcome {
    for seed in 0..40 {
        for cns in [0, 1, 2] {
            let fixture = Fixture::new(model::Options {
                faults: Faults {
                    identify_random: Some(cns),
                    logs_random: true,
                    features_random: seed % 2 == 0,
                    ..Faults::default()
                },
                ..small(seed)
            })?;
            let Ok(controller) = fixture.open(quick()) else {
                continue;
            };
            let _ = controller.namespaces();
            let _ = controller.health();
            let _ = controller.errors(64);
            let _ = controller.take_events();
            let _ = controller.is_cache_used();
            drop(controller);
            exercise(&fixture, quick(), 2)?;
        }
    }
    Ok(())
}

#[test]
fn lies_about_sizes_are_survived() -> Outcome {
    let lie = |cns, offset, bytes: &[u8]| IdentifyLie {
        cns,
        offset,
        bytes: bytes.to_vec(),
    };
    let lies = [
        lie(1, 77, &[255]),
        lie(1, 77, &[0]),
        lie(1, 77, &[64]),
        lie(1, 516, &u32::MAX.to_le_bytes()),
        lie(1, 516, &[0; 4]),
        lie(1, 512, &[0x00, 0x00]),
        lie(1, 512, &[0xff, 0xff]),
        lie(1, 258, &[255, 255]),
        lie(1, 111, &[2]),
        lie(0, 0, &u64::MAX.to_le_bytes()),
        lie(0, 0, &[0; 8]),
        lie(0, 25, &[255, 255]),
        lie(0, 26, &[0x0f]),
        lie(0, 46, &[1, 0]),
        lie(0, 128, &[0, 0, 0, 0]),
        lie(0, 128, &[0, 0, 255, 0]),
        lie(0, 128, &[8, 0, 9, 0]),
        lie(0, 128, &[0, 0, 16, 0]),
        lie(2, 0, &[0; 8]),
        lie(2, 0, &[5, 0, 0, 0, 1, 0, 0, 0]),
        lie(2, 0, &[255; 4096]),
    ];
    for lie in lies {
        let fixture = Fixture::new(model::Options {
            faults: Faults {
                identify: vec![lie.clone()],
                ..Faults::default()
            },
            ..small(1)
        })?;
        if let Ok(controller) = fixture.open(quick()) {
            let _ = controller.namespaces();
        }
        let tally = exercise(&fixture, quick(), 2)?;
        println!("{lie:?}: {tally:?}");
    }
    for (clear, set) in [
        (0xffff, 0),
        (0xff << 24, 0),
        (0, 0xf << 48),
        (0xf << 52, 0xf << 48),
        (1 << 37, 0),
        (0, 0xf << 32),
        (0, 0xffff),
    ] {
        let options = model::Options {
            faults: Faults {
                capabilities_clear: clear,
                capabilities_set: set,
                ..Faults::default()
            },
            ..small(1)
        };
        let fixture = Fixture::new(options)?;
        let tally = exercise(&fixture, quick(), 2)?;
        println!("CAP without {clear:#x}, with {set:#x}: {tally:?}");
    }
    Ok(())
}
