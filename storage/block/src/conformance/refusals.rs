//! Tests of invalid requests.

use std::sync::Arc;

use millrace_memory::{Arena, ArenaOptions, NoDevice};

use super::{arena, filled};
use crate::{Deallocation, Device, ErrorKind, Geometry, Lba, Operation, Queue, Request};

/// Invalid requests are returned unchanged, by `submit` and by `run`: blocks beyond the device, a length of zero, of
/// partial blocks or too long, a missing or superfluous buffer, a buffer of another domain.
pub fn invalid_requests_are_returned(device: &Arc<dyn Device>) {
    let geometry = device.geometry();
    let arena = arena(&**device);
    let mut queue = device.queue().expect("a queue");
    let options = ArenaOptions {
        locked: false,
        ..ArenaOptions::default()
    };
    let elsewhere = Arena::new(Arc::new(NoDevice::default()), &options).expect("there is memory");
    let foreign = filled(&elsewhere, geometry.block_bytes as usize, 0);
    let foreign = ("another domain", Request::write(Lba(0), foreign, 0));
    let checks = of_other_blocks(geometry, &arena);
    let checks = checks.into_iter().chain(of_other_lengths(geometry, &arena));
    for (what, request) in checks
        .chain(without_sense(&arena, geometry))
        .chain([foreign])
    {
        let request = comes_back(&mut *queue, request, what, false);
        comes_back(&mut *queue, request, what, true);
    }
    if geometry.deallocation == Deallocation::None {
        let refused = queue.submit(Request::deallocate(Lba(0), 1, 7));
        let refused = refused.expect_err("this device does not support TRIM");
        assert_eq!(refused.error.kind(), ErrorKind::Unsupported);
    } else {
        let request = Request::deallocate(Lba(geometry.blocks), 1, 0);
        comes_back(&mut *queue, request, "behind the end", false);
    }
    assert_eq!(queue.in_flight(), 0);
}

type Check = (&'static str, Request);

/// Requests for blocks beyond the device.
fn of_other_blocks(geometry: &Geometry, arena: &Arena) -> Vec<Check> {
    let (block, blocks) = (geometry.block_bytes as usize, geometry.blocks);
    let buffer = |len| filled(arena, len, 0xab);
    let beyond = Lba(u64::MAX >> 4);
    vec![
        (
            "behind the end",
            Request::read(Lba(blocks), buffer(block), 0),
        ),
        (
            "across the end",
            Request::write(Lba(blocks - 1), buffer(2 * block), 0),
        ),
        (
            "beyond 64 bits",
            Request::write_through(Lba(u64::MAX), buffer(block), 0),
        ),
        (
            "bytes beyond 64 bits",
            Request::read(beyond, buffer(block), 0),
        ),
        ("behind the end", Request::write_zeroes(Lba(blocks), 1, 0)),
        ("across the end", Request::write_zeroes(Lba(1), blocks, 0)),
        ("beyond 64 bits", Request::write_zeroes(Lba(2), u64::MAX, 0)),
        ("no blocks", Request::write_zeroes(Lba(0), 0, 0)),
    ]
}

/// Buffers of partial blocks, too long, or that begin within a block.
fn of_other_lengths(geometry: &Geometry, arena: &Arena) -> Vec<Check> {
    let block = geometry.block_bytes as usize;
    let within = |start: usize, len: usize| {
        let mut buffer = filled(arena, 2 * block, 0xab);
        buffer
            .set_range(start..start + len)
            .expect("it is long enough");
        buffer
    };
    let too_long = filled(arena, geometry.transfer_bytes_max + block, 0);
    let inside = block.min(4096) / 2;
    vec![
        ("no blocks", Request::read(Lba(0), within(0, 0), 0)),
        (
            "not whole blocks",
            Request::write(Lba(0), within(0, block - 1), 0),
        ),
        (
            "not whole blocks",
            Request::read(Lba(0), within(0, block + 4), 0),
        ),
        (
            "begins within a block",
            Request::read(Lba(0), within(inside, block), 0),
        ),
        ("too long", Request::read(Lba(0), too_long, 0)),
    ]
}

/// Missing and superfluous buffers.
fn without_sense(arena: &Arena, geometry: &Geometry) -> Vec<Check> {
    let bare = |operation| Request {
        operation,
        lba: Lba(0),
        buffer: None,
        token: 0,
    };
    let with_buffer = |operation| Request {
        buffer: Some(filled(arena, geometry.block_bytes as usize, 0)),
        ..bare(operation)
    };
    vec![
        ("no buffer", bare(Operation::Read)),
        ("no buffer", bare(Operation::Write)),
        ("no buffer", bare(Operation::WriteThrough)),
        ("a buffer too many", with_buffer(Operation::Flush)),
        ("a buffer too many", with_buffer(Operation::WriteZeroes(1))),
    ]
}

fn comes_back(queue: &mut dyn Queue, mut request: Request, what: &str, run: bool) -> Request {
    request.token = 99;
    let shape = |request: &Request| {
        let buffer = request.buffer.as_ref();
        let buffer = buffer.map(|buffer| (buffer.iova(), buffer.range()));
        (request.operation, request.lba, request.token, buffer)
    };
    let before = shape(&request);
    let refused = match run {
        false => queue.submit(request).err(),
        true => queue.run(request).err(),
    };
    let refused = refused.unwrap_or_else(|| panic!("{what} was taken: {before:?}"));
    assert_eq!(
        refused.error.kind(),
        ErrorKind::Invalid,
        "{what}: {}",
        refused.error
    );
    assert_eq!(shape(&refused.request), before, "{what}");
    refused.request
}
