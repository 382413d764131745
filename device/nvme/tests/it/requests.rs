//! Requests on a controller that does what it should.

use crate::fixture::{Fixture, Outcome, PATIENCE, arena, filled, polled, quick, single};
use millrace_nvme::{
    CommandError, Data, ErrorKind, Lba, Namespace, Options, QueuePair, Refusal, Request,
    ScatterGather, Status,
};
use millrace_nvme_model as model;

fn namespace(block_size: u32, optimal_boundary: u16) -> model::NamespaceOptions {
    model::NamespaceOptions {
        block_size,
        blocks: (16 << 20) / u64::from(block_size),
        optimal_boundary,
        ..model::NamespaceOptions::default()
    }
}

#[test]
fn what_is_written_is_read_again() -> Outcome {
    for block_size in [512, 4096] {
        let fixture = Fixture::new(model::Options {
            namespaces: vec![namespace(block_size, 0)],
            ..model::Options::default()
        })?;
        let controller = fixture.open(quick())?;
        assert_eq!(controller.namespaces()?, [1]);
        let namespace = controller.namespace(1)?;
        assert_eq!(namespace.block_size(), block_size);
        let (arena, mut pair) = (arena(&controller)?, polled(&controller, 8)?);
        for len in [4096, 8192, 64 << 10, 1 << 20] {
            let written = single(
                &mut pair,
                &namespace,
                Request::write(Lba(5), filled(&arena, len, 7)?, 1),
            )?;
            assert_eq!((written.token, written.result), (1, Ok(())));
            drop(written);
            let read = single(
                &mut pair,
                &namespace,
                Request::read(Lba(5), filled(&arena, len, 0)?, 2),
            )?;
            assert_eq!((read.token, read.result), (2, Ok(())));
            let buffer = read.data.and_then(Data::into_buffer).ok_or("no data")?;
            assert!(buffer.len() == len && buffer.iter().all(|byte| *byte == 7));
        }
        drop(pair);
        assert_eq!(fixture.model.violations(), []);
        assert_eq!(fixture.model.dma_faults(), []);
    }
    Ok(())
}

#[test]
fn ranges_of_blocks_are_moved_as_they_lie() -> Outcome {
    for (scatter_gather, page_shift) in [
        (ScatterGather::Never, 0),
        (ScatterGather::Never, 4),
        (ScatterGather::Always, 0),
    ] {
        let fixture = Fixture::new(model::Options {
            namespaces: vec![namespace(512, 0)],
            page_min: page_shift,
            page_max: page_shift,
            sgl: model::SglSupport::Any,
            ..model::Options::default()
        })?;
        let controller = fixture.open(Options {
            scatter_gather,
            ..quick()
        })?;
        let namespace = controller.namespace(1)?;
        let (arena, mut pair) = (arena(&controller)?, polled(&controller, 4)?);
        let sectors = |len: usize| len / 512;
        // One page, two, a list, and, of the longest block, several commands.
        for (capacity, start, len) in [
            (4096, 512, 512),
            (4096, 3584, 512),
            (64 << 10, 3584, 1024),
            (64 << 10, 512, 4096),
            (64 << 10, 4096, 12 << 10),
            (64 << 10, 512, 63 << 10),
            (1 << 20, 4608, (1 << 20) - 4608),
            (1 << 20, 512, (1 << 20) - 1024),
        ] {
            let what = format!("{scatter_gather:?}, {start} + {len} of {capacity}");
            let mut buffer = filled(&arena, capacity, 0xee)?;
            buffer.set_range(start..start + len)?;
            for (at, sector) in buffer.chunks_mut(512).enumerate() {
                sector.fill(u8::try_from(at % 251)?);
            }
            single(&mut pair, &namespace, Request::write(Lba(7), buffer, 0))?.result?;
            for at in 0..sectors(len) {
                let expected = [u8::try_from(at % 251)?; 512];
                assert_eq!(fixture.model.peek(1, 7 + at as u64)?, expected, "{what}");
            }
            let mut buffer = filled(&arena, capacity, 0xee)?;
            buffer.set_range(start..start + len)?;
            let read = single(&mut pair, &namespace, Request::read(Lba(7), buffer, 0))?;
            read.result?;
            let mut buffer = read.data.and_then(Data::into_buffer).ok_or("no data")?;
            assert_eq!(buffer.range(), start..start + len);
            for (at, sector) in buffer.chunks(512).enumerate() {
                assert_eq!(sector, [u8::try_from(at % 251)?; 512], "{what}");
            }
            // What is of no use was not touched.
            buffer.set_range(0..start)?;
            assert!(buffer.iter().all(|byte| *byte == 0xee), "{what}");
            buffer.set_range(start + len..capacity)?;
            assert!(buffer.iter().all(|byte| *byte == 0xee), "{what}");
        }
        let mut buffer = filled(&arena, 4096, 0)?;
        buffer.set_range(2..514)?;
        let refused = pair.submit(&namespace, Request::read(Lba(7), buffer, 0));
        assert_eq!(
            refused.err().map(|refused| refused.reason),
            Some(Refusal::Alignment)
        );
        drop(pair);
        assert_eq!(fixture.model.violations(), []);
        assert_eq!(fixture.model.dma_faults(), []);
    }
    Ok(())
}

#[test]
fn requests_are_cut_at_the_transfer_limit_and_the_boundary() -> Outcome {
    let fixture = Fixture::new(model::Options {
        namespaces: vec![namespace(512, 24)],
        transfer_max: 2,
        ..model::Options::default()
    })?;
    let controller = fixture.open(quick())?;
    assert_eq!(controller.transfer_max(), 16 << 10);
    let namespace = controller.namespace(1)?;
    let (arena, mut pair) = (arena(&controller)?, polled(&controller, 4)?);
    let before = fixture.model.counters().writes;
    let written = single(
        &mut pair,
        &namespace,
        Request::write(Lba(20), filled(&arena, 96 * 512, 1)?, 0),
    )?;
    written.result?;
    // Blocks 20 to 115: cut at 24, 48, 72 and 96.
    assert_eq!(fixture.model.counters().writes - before, 5);
    assert_eq!(fixture.model.counters().boundary_crossings, 0);
    assert_eq!(fixture.model.violations(), []);
    Ok(())
}

#[test]
fn a_write_that_is_atomic_is_not_cut() -> Outcome {
    let fixture = Fixture::new(model::Options {
        namespaces: vec![model::NamespaceOptions {
            atomic_write: 8,
            atomic_write_power_fail: 8,
            ..namespace(512, 24)
        }],
        ..model::Options::default()
    })?;
    let controller = fixture.open(quick())?;
    let namespace = controller.namespace(1)?;
    assert_eq!(namespace.atomic_write(), 8);
    let (arena, mut pair) = (arena(&controller)?, polled(&controller, 4)?);
    single(
        &mut pair,
        &namespace,
        Request::write(Lba(20), filled(&arena, 8 * 512, 1)?, 0),
    )?
    .result?;
    assert_eq!(fixture.model.counters().writes, 1);
    single(
        &mut pair,
        &namespace,
        Request::read(Lba(20), filled(&arena, 8 * 512, 1)?, 0),
    )?
    .result?;
    assert_eq!(fixture.model.counters().reads, 2, "reads are cut");
    Ok(())
}

#[test]
fn many_requests_cost_one_doorbell() -> Outcome {
    let fixture = Fixture::new(model::Options {
        namespaces: vec![namespace(512, 0)],
        ..model::Options::default()
    })?;
    let controller = fixture.open(Options {
        shadow_doorbells: false,
        ..quick()
    })?;
    let namespace = controller.namespace(1)?;
    let (arena, mut pair) = (arena(&controller)?, polled(&controller, 32)?);
    // The admin queue's last doorbell is seen before.
    fixture.model.step();
    let before = fixture.model.counters();
    for token in 0..32 {
        pair.submit(
            &namespace,
            Request::read(Lba(token), filled(&arena, 512, 0)?, token),
        )?;
    }
    let mut ended = 0;
    while pair.requests_in_flight() > 0 {
        ended += pair.wait(PATIENCE, |completion| assert!(completion.result.is_ok()));
    }
    assert_eq!(ended, 32);
    let after = fixture.model.counters();
    assert_eq!(after.commands - before.commands, 32);
    // One for all submissions; completions are told later, when room is needed.
    assert_eq!(after.doorbells - before.doorbells, 1);
    Ok(())
}

#[test]
fn more_parts_than_the_queue_holds_wait_their_turn() -> Outcome {
    let fixture = Fixture::new(model::Options {
        namespaces: vec![namespace(512, 0)],
        transfer_max: 1,
        queue_entries_max: 4,
        ..model::Options::default()
    })?;
    let controller = fixture.open(quick())?;
    let namespace = controller.namespace(1)?;
    let (arena, mut pair) = (arena(&controller)?, polled(&controller, 100)?);
    assert_eq!(pair.depth(), 3);
    for token in 0..3 {
        let lba = Lba(token * 2048);
        pair.submit(
            &namespace,
            Request::write(lba, filled(&arena, 1 << 20, 9)?, token),
        )?;
    }
    let refused = pair
        .submit(&namespace, Request::flush(3))
        .err()
        .ok_or("it was accepted")?;
    assert_eq!(refused.reason, Refusal::QueueFull);
    let mut tokens = Vec::new();
    while pair.requests_in_flight() > 0 {
        pair.wait(PATIENCE, |completion| {
            assert_eq!(completion.result, Ok(()));
            tokens.push(completion.token);
        });
    }
    tokens.sort_unstable();
    assert_eq!(tokens, [0, 1, 2]);
    assert_eq!(fixture.model.peek(1, 3 * 2048 - 1)?, [9; 512]);
    assert_eq!(fixture.model.violations(), []);
    Ok(())
}

/// Each of these requests comes back with its reason, and the controller hears of none.
fn assert_refused<'a>(
    fixture: &Fixture,
    pair: &mut QueuePair,
    cases: impl IntoIterator<Item = (&'a Namespace, Request, Refusal)>,
) -> Outcome {
    let commands = fixture.model.counters().commands;
    for (namespace, mut request, reason) in cases {
        request.token = 77;
        let refused = pair
            .submit(namespace, request)
            .err()
            .ok_or("it was accepted")?;
        assert_eq!((refused.reason, refused.request.token), (reason, 77));
    }
    assert_eq!(pair.requests_in_flight(), 0);
    pair.poll(|_| {});
    fixture.model.step();
    assert_eq!(
        fixture.model.counters().commands,
        commands,
        "nothing was sent"
    );
    Ok(())
}

#[test]
fn blocks_that_a_namespace_has_not_are_refused() -> Outcome {
    let fixture = Fixture::new(model::Options {
        namespaces: vec![namespace(512, 0)],
        ..model::Options::default()
    })?;
    let controller = fixture.open(quick())?;
    let namespace = controller.namespace(1)?;
    let (arena, mut pair) = (arena(&controller)?, polled(&controller, 8)?);
    let end = namespace.blocks();
    let block = || filled(&arena, 512, 0);
    let cases = [
        Request::read(Lba(end), block()?, 0),
        Request::read(Lba(end - 1), filled(&arena, 1024, 0)?, 0),
        Request::write(Lba(u64::MAX), block()?, 0),
        Request::write_zeroes(Lba(end), 1, 0),
        Request::deallocate(Lba(1), end, 0),
    ];
    let cases = cases.map(|request| (&namespace, request, Refusal::OutOfRange));
    assert_refused(&fixture, &mut pair, cases)
}

#[test]
fn data_that_is_no_whole_blocks_is_refused() -> Outcome {
    let fixture = Fixture::new(model::Options {
        namespaces: vec![namespace(512, 0)],
        ..model::Options::default()
    })?;
    let controller = fixture.open(quick())?;
    let namespace = controller.namespace(1)?;
    let (arena, mut pair) = (arena(&controller)?, polled(&controller, 8)?);
    let own = |len| filled(&arena, len, 0);
    let pieces = vec![own(512)?, own(512)?, own(512)?];
    let mut no_data = Request::read(Lba(0), own(512)?, 0);
    no_data.data = None;
    let mut data = Request::flush(0);
    data.data = Some(own(512)?.into());
    let cases = [
        (Request::write(Lba(0), own(0)?, 0), Refusal::Length),
        (Request::write(Lba(0), own(500)?, 0), Refusal::Length),
        (Request::write(Lba(0), own(511)?, 0), Refusal::Length),
        (Request::read(Lba(0), pieces, 0), Refusal::Alignment),
        (no_data, Refusal::Data),
        (data, Refusal::Data),
    ];
    let cases = cases.map(|(request, reason)| (&namespace, request, reason));
    assert_refused(&fixture, &mut pair, cases)
}

#[test]
fn what_is_of_another_controller_is_refused() -> Outcome {
    let fixture = Fixture::new(model::Options::default())?;
    let other = Fixture::new(model::Options::default())?;
    let (controller, foreign) = (fixture.open(quick())?, other.open(quick())?);
    let (namespace, foreign_namespace) = (controller.namespace(1)?, foreign.namespace(1)?);
    let (arena, mut pair) = (arena(&foreign)?, polled(&controller, 8)?);
    let read = Request::read(Lba(0), filled(&arena, 4096, 0)?, 0);
    let flush = Request::flush(0);
    let cases = [
        (&namespace, read, Refusal::ForeignMemory),
        (&foreign_namespace, flush, Refusal::ForeignNamespace),
    ];
    assert_refused(&fixture, &mut pair, cases)
}

#[test]
fn commands_that_a_controller_lacks_are_refused() -> Outcome {
    let fixture = Fixture::new(model::Options {
        commands: model::Commands {
            compare: false,
            write_zeroes: false,
            dataset_management: false,
            ..model::Commands::default()
        },
        ..model::Options::default()
    })?;
    let controller = fixture.open(quick())?;
    let namespace = controller.namespace(1)?;
    let (arena, mut pair) = (arena(&controller)?, polled(&controller, 8)?);
    let cases = [
        Request::compare(Lba(0), filled(&arena, 4096, 0)?, 0),
        Request::write_zeroes(Lba(0), 1, 0),
        Request::deallocate(Lba(0), 1, 0),
    ];
    let cases = cases.map(|request| (&namespace, request, Refusal::Unsupported));
    assert_refused(&fixture, &mut pair, cases)
}

#[test]
fn pages_are_as_large_as_the_controller_wants() -> Outcome {
    let fixture = Fixture::new(model::Options {
        namespaces: vec![namespace(512, 0)],
        page_min: 4,
        page_max: 4,
        transfer_max: 3,
        ..model::Options::default()
    })?;
    let controller = fixture.open(quick())?;
    assert_eq!(controller.page_size(), 64 << 10);
    assert_eq!(controller.transfer_max(), 512 << 10);
    let namespace = controller.namespace(1)?;
    let (arena, mut pair) = (arena(&controller)?, polled(&controller, 8)?);
    for (len, byte) in [(512, 1), (4096, 2), (64 << 10, 3), (1 << 20, 4)] {
        let write = Request::write(Lba(3), filled(&arena, len, byte)?, 0);
        single(&mut pair, &namespace, write)?.result?;
        let last = 3 + u64::try_from(len / 512)? - 1;
        for lba in [3, last] {
            assert_eq!(fixture.model.peek(1, lba)?, [byte; 512], "block {lba}");
        }
    }
    assert_eq!(fixture.model.violations(), []);
    assert_eq!(fixture.model.dma_faults(), []);
    Ok(())
}

#[test]
fn pieces_without_page_borders_need_scatter_gather_lists() -> Outcome {
    for wish in [ScatterGather::WhenNeeded, ScatterGather::Always] {
        let fixture = Fixture::new(model::Options {
            namespaces: vec![namespace(512, 0)],
            sgl: model::SglSupport::Any,
            ..model::Options::default()
        })?;
        let controller = fixture.open(Options {
            scatter_gather: wish,
            ..quick()
        })?;
        let namespace = controller.namespace(1)?;
        let (arena, mut pair) = (arena(&controller)?, polled(&controller, 8)?);
        let pieces = vec![
            filled(&arena, 512, 1)?,
            filled(&arena, 1024, 2)?,
            filled(&arena, 200 * 512, 3)?,
            filled(&arena, 512, 4)?,
        ];
        single(&mut pair, &namespace, Request::write(Lba(9), pieces, 0))?.result?;
        for (block, byte) in [
            (9, 1),
            (10, 2),
            (11, 2),
            (12, 3),
            (211, 3),
            (212, 4),
            (213, 0),
        ] {
            assert_eq!(fixture.model.peek(1, block)?, [byte; 512], "block {block}");
        }
        assert_eq!(fixture.model.violations(), []);
    }
    Ok(())
}

#[test]
fn compare_zeroes_and_deallocation_do_what_they_say() -> Outcome {
    let fixture = Fixture::new(model::Options::default())?;
    let controller = fixture.open(quick())?;
    let namespace = controller.namespace(1)?;
    let block = usize::try_from(namespace.block_size())?;
    let (arena, mut pair) = (arena(&controller)?, polled(&controller, 8)?);
    single(
        &mut pair,
        &namespace,
        Request::write(Lba(0), filled(&arena, 8 * block, 3)?, 0),
    )?
    .result?;
    let compare = |byte| {
        Ok::<_, millrace_memory::Exhausted>(Request::compare(
            Lba(0),
            filled(&arena, block, byte)?,
            0,
        ))
    };
    single(&mut pair, &namespace, compare(3)?)?.result?;
    let differs = single(&mut pair, &namespace, compare(4)?)?.result;
    assert!(
        matches!(differs, Err(CommandError::Status(status)) if status.is(Status::COMPARE_FAILURE))
    );
    single(&mut pair, &namespace, Request::write_zeroes(Lba(1), 2, 0))?.result?;
    single(&mut pair, &namespace, Request::deallocate(Lba(4), 2, 0))?.result?;
    let bytes: Vec<u8> = (0..8)
        .map(|lba| fixture.model.peek(1, lba).map(|block| block[0]))
        .collect::<Result<_, _>>()?;
    assert_eq!(bytes, [3, 0, 0, 3, 0, 0, 3, 3]);
    Ok(())
}

#[test]
fn flushed_and_forced_writes_survive_a_power_cut() -> Outcome {
    let mut lost = 0;
    for seed in 0..20 {
        let fixture = Fixture::new(model::Options {
            seed,
            ..model::Options::default()
        })?;
        let controller = fixture.open(quick())?;
        assert!(controller.is_cache_used()?);
        let namespace = controller.namespace(1)?;
        let block = usize::try_from(namespace.block_size())?;
        let (arena, mut pair) = (arena(&controller)?, polled(&controller, 8)?);
        let write = |pair: &mut _, lba, byte| -> Outcome {
            Ok(single(
                pair,
                &namespace,
                Request::write(Lba(lba), filled(&arena, block, byte)?, 0),
            )?
            .result?)
        };
        for lba in 0..16 {
            write(&mut pair, lba, 1)?;
        }
        single(&mut pair, &namespace, Request::flush(0))?.result?;
        for lba in 16..32 {
            let forced = Request::write_through(Lba(lba), filled(&arena, block, 2)?, 0);
            single(&mut pair, &namespace, forced)?.result?;
        }
        for lba in 32..48 {
            write(&mut pair, lba, 3)?;
        }
        fixture.model.power_cut();
        for lba in 0..48 {
            let byte = fixture.model.peek(1, lba)?[0];
            match lba {
                0..16 => assert_eq!(byte, 1, "block {lba}, seed {seed}"),
                16..32 => assert_eq!(byte, 2, "block {lba}, seed {seed}"),
                _ => lost += usize::from(byte != 3),
            }
        }
    }
    assert!(lost > 0, "the model loses what was not flushed");
    Ok(())
}

#[test]
fn queue_pairs_are_given_out_once() -> Outcome {
    let fixture = Fixture::new(model::Options {
        queues: 2,
        ..model::Options::default()
    })?;
    let controller = fixture.open(quick())?;
    let first = polled(&controller, 8)?;
    let _second = polled(&controller, 8)?;
    let none = polled(&controller, 8).err().ok_or("a third was given")?;
    assert_eq!(none.kind(), ErrorKind::NoQueue);
    drop(first);
    let _again = polled(&controller, 8)?;
    assert_eq!(fixture.model.violations(), []);
    Ok(())
}

#[test]
fn formatting_changes_the_block_size() -> Outcome {
    let fixture = Fixture::new(model::Options {
        namespaces: vec![namespace(512, 0)],
        ..model::Options::default()
    })?;
    let controller = fixture.open(quick())?;
    let before = controller.namespace(1)?;
    let formats = &before.data().formats;
    let other = formats
        .iter()
        .position(|format| format.block_shift == 12)
        .ok_or("no format of 4 KiB")?;
    controller.format(1, other, millrace_nvme::Erase::No, PATIENCE)?;
    let after = controller.namespace(1)?;
    assert_eq!(after.block_size(), 4096);
    assert_eq!(after.size(), before.size());
    let missing = controller.format(1, 60, millrace_nvme::Erase::No, PATIENCE);
    assert_eq!(
        missing.err().map(|error| error.kind()),
        Some(ErrorKind::Invalid)
    );
    assert_eq!(fixture.model.violations(), []);
    Ok(())
}

#[test]
fn what_the_controller_says_unasked_is_heard_again_and_again() -> Outcome {
    let fixture = Fixture::new(model::Options::default())?;
    let controller = fixture.open(quick())?;
    for _ in 0..10 {
        fixture.model.raise_event(model::Event::Temperature);
        fixture.model.step();
        let (events, lost) = controller.take_events()?;
        assert_eq!((events.len(), lost), (1, 0));
        assert_eq!(events[0].kind, millrace_nvme::EventKind::Health);
    }
    assert_eq!(fixture.model.violations(), []);
    Ok(())
}
