//! What a controller says of its limits, and what it leaves out.

use crate::fixture::{Fixture, Outcome, arena, filled, polled, quick, single};
use millrace_nvme::{CommandError, ErrorKind, Lba, Request};
use millrace_nvme_model as model;
use model::{Fault, FaultRule, Faults, IdentifyLie, Status, Target, When};

const VERSION_2: u32 = 2 << 16;
/// The NVM command set's Identify Controller.
const NVM_CONTROLLER: u8 = 6;

fn options(block_size: u32, blocks: u64) -> model::Options {
    model::Options {
        namespaces: vec![model::NamespaceOptions {
            block_size,
            blocks,
            ..model::NamespaceOptions::default()
        }],
        ..model::Options::default()
    }
}

/// Which data structure, where, and the bytes there.
type Lie<'a> = (u8, usize, &'a [u8]);

fn lies(lies: &[Lie<'_>]) -> Faults {
    let identify = lies.iter().map(|(cns, offset, bytes)| IdentifyLie {
        cns: *cns,
        offset: *offset,
        bytes: bytes.to_vec(),
    });
    Faults {
        identify: identify.collect(),
        ..Faults::default()
    }
}

/// How many commands a request comes to on such a controller.
fn commands(options: model::Options, request: Request) -> Result<u64, Box<dyn std::error::Error>> {
    let fixture = Fixture::new(options)?;
    let controller = fixture.open(quick())?;
    let namespace = controller.namespace(1)?;
    let mut pair = polled(&controller, 8)?;
    let before = fixture.model.counters().commands;
    single(&mut pair, &namespace, request)?.result?;
    assert_eq!(fixture.model.violations(), []);
    Ok(fixture.model.counters().commands - before)
}

/// QEMU's controller does nothing for longer ranges, and says that it has succeeded.
#[test]
fn ranges_to_deallocate_are_no_longer_than_any_controller_takes() -> Outcome {
    for (block_size, blocks, expected) in [
        (512, 1 << 18, 1),
        (512, 5 << 20, 20),
        (4096, 3 << 18, 3),
        (4096, (3 << 18) + 1, 4),
        (65_536, 1 << 15, 2),
    ] {
        let request = Request::deallocate(Lba(0), blocks, 0);
        let count = commands(options(block_size, 1 << 23), request)?;
        assert_eq!(count, expected, "{blocks} blocks of {block_size} bytes");
    }
    Ok(())
}

#[test]
fn ranges_to_deallocate_are_as_long_as_the_controller_says() -> Outcome {
    let of_range = [8, 0, 0, 0];
    let of_all = [5, 0, 0, 0, 0, 0, 0, 0];
    let cases: [(u32, &[Lie<'_>], u64); 5] = [
        (VERSION_2, &[(NVM_CONTROLLER, 4, &of_range)], 3),
        (VERSION_2, &[(NVM_CONTROLLER, 8, &of_all)], 4),
        (
            VERSION_2,
            &[(NVM_CONTROLLER, 4, &of_range), (NVM_CONTROLLER, 8, &of_all)],
            4,
        ),
        (VERSION_2, &[], 1),
        // Before 2.0 it is not asked.
        (0x0001_0400, &[(NVM_CONTROLLER, 4, &of_range)], 1),
    ];
    for (version, said, expected) in cases {
        let options = model::Options {
            version,
            faults: lies(said),
            ..options(512, 4096)
        };
        let count = commands(options, Request::deallocate(Lba(0), 20, 0))?;
        assert_eq!(count, expected, "{version:#x}, {said:?}");
    }
    Ok(())
}

#[test]
fn zeroes_are_written_as_far_as_the_controller_says() -> Outcome {
    // The transfer limit is 128 KiB.
    let cases: [(u32, u8, u64); 4] = [
        (0x0001_0400, 0, 16),
        (VERSION_2, 0, 1),
        (VERSION_2, 6, 8),
        (VERSION_2, 255, 1),
    ];
    for (version, shift, expected) in cases {
        let options = model::Options {
            version,
            faults: lies(&[(NVM_CONTROLLER, 1, &[shift])]),
            ..options(512, 4096)
        };
        let count = commands(options, Request::write_zeroes(Lba(0), 4096, 0))?;
        assert_eq!(count, expected, "{version:#x}, WZSL {shift}");
    }
    Ok(())
}

#[test]
fn zeroes_are_deallocated_only_where_that_is_offered() -> Outcome {
    // DLFEAT.
    for (said, offered) in [([1], false), ([1 << 3], true)] {
        let fixture = Fixture::new(model::Options {
            faults: lies(&[(0, 33, &said)]),
            ..options(512, 4096)
        })?;
        let controller = fixture.open(quick())?;
        let namespace = controller.namespace(1)?;
        assert_eq!(namespace.zeroes_deallocate(), offered);
        let (arena, mut pair) = (arena(&controller)?, polled(&controller, 8)?);
        let write = Request::write(Lba(3), filled(&arena, 512, 7)?, 0);
        single(&mut pair, &namespace, write)?.result?;
        single(&mut pair, &namespace, Request::write_zeroes(Lba(3), 1, 0))?.result?;
        assert_eq!(fixture.model.peek(1, 3)?, [0; 512]);
    }
    Ok(())
}

/// A unit of the namespace that is zero was read as one block.
#[test]
fn atomic_units_that_a_namespace_leaves_out_are_the_controllers() -> Outcome {
    for (own, own_power_fail, expected) in [(0, 0, 4), (32, 0, 4), (32, 8, 8), (0, 8, 8)] {
        let fixture = Fixture::new(model::Options {
            namespaces: vec![model::NamespaceOptions {
                block_size: 512,
                blocks: 4096,
                atomic_write: own,
                atomic_write_power_fail: own_power_fail,
                ..model::NamespaceOptions::default()
            }],
            atomic_write: 16,
            atomic_write_power_fail: 4,
            ..model::Options::default()
        })?;
        let controller = fixture.open(quick())?;
        let namespace = controller.namespace(1)?;
        assert_eq!(
            namespace.atomic_write(),
            expected,
            "NAWUN {own}, NAWUPF {own_power_fail}"
        );
        let data = namespace.data();
        assert_eq!(data.atomic_write.map(u32::from), own.checked_sub(1));
    }
    Ok(())
}

#[test]
fn the_error_log_is_read_as_far_as_it_goes() -> Outcome {
    for (said, kept) in [(3, 4), (0, 1), (63, 20)] {
        let fixture = Fixture::new(model::Options {
            // ELPE.
            faults: lies(&[(1, 262, &[said])]),
            ..options(512, 4096)
        })?;
        let controller = fixture.open(quick())?;
        let namespace = controller.namespace(1)?;
        let (arena, mut pair) = (arena(&controller)?, polled(&controller, 8)?);
        fixture.model.set_faults(Faults {
            rules: vec![FaultRule {
                target: Target::Io,
                when: When::Always,
                fault: Fault::Fail(Status::READ_ERROR.do_not_retry()),
            }],
            ..Faults::default()
        });
        for _ in 0..20 {
            let read = Request::read(Lba(0), filled(&arena, 512, 0)?, 0);
            let result = single(&mut pair, &namespace, read)?.result;
            assert!(matches!(result, Err(CommandError::Status(_))));
        }
        assert_eq!(controller.errors(64)?.len(), kept, "ELPE {said}");
        assert_eq!(controller.errors(2)?.len(), kept.min(2), "ELPE {said}");
    }
    Ok(())
}

#[test]
fn all_namespaces_are_listed() -> Outcome {
    // The second list has a full page, which another follows.
    for count in [1_u32, 5, 1023, 1024] {
        let mut options = options(512, 8);
        options.namespaces = vec![options.namespaces[0].clone(); usize::try_from(count)?];
        let fixture = Fixture::new(options)?;
        let controller = fixture.open(quick())?;
        let expected: Vec<u32> = (1..=count).collect();
        assert_eq!(controller.namespaces()?, expected);
        assert_eq!(controller.namespace(count)?.blocks(), 8);
        let none = controller.namespace(count + 1).err();
        let kind = none.map(|error| error.kind());
        assert_eq!(kind, Some(ErrorKind::NoNamespace));
    }
    Ok(())
}

/// Any error of Identify was taken for a namespace that is not there.
#[test]
fn only_the_status_for_it_says_that_there_is_no_namespace() -> Outcome {
    let identify = 0x06;
    for (status, kind) in [
        (Status::INTERNAL, ErrorKind::Command),
        (Status::INVALID_FIELD, ErrorKind::Command),
        (Status::INVALID_NAMESPACE, ErrorKind::NoNamespace),
    ] {
        let fixture = Fixture::new(options(512, 4096))?;
        let controller = fixture.open(quick())?;
        fixture.model.set_faults(Faults {
            rules: vec![FaultRule {
                target: Target::AdminOpcode(identify),
                when: When::Always,
                fault: Fault::Fail(status.do_not_retry()),
            }],
            ..Faults::default()
        });
        let error = controller.namespace(1).err().ok_or("it was identified")?;
        assert_eq!(error.kind(), kind, "{error}");
        assert_eq!(controller.resets(), 0);
    }
    Ok(())
}
