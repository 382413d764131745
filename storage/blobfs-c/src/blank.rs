//! Whether a device holds anything.

use std::sync::Arc;

use millrace_block::{Device, Error, ErrorKind, Lba, Queue, Request, Result};
use millrace_memory::{Arena, ArenaOptions, DomainId, NoDevice, SizeClass};

/// Bytes read at the start and at the end of a device: partition tables, file systems, volume managers and databases
/// have their signatures there.
const LOOKED_AT_BYTES: u64 = 1 << 20;

/// Bytes of one request.
const PIECE_BYTES: usize = 256 << 10;

/// Whether the first and the last megabyte of a device are zeros.
///
/// # Errors
/// [`ErrorKind::Memory`], [`ErrorKind::Medium`], [`ErrorKind::Device`].
pub fn is_blank(device: &Arc<dyn Device>) -> Result<bool> {
    let geometry = device.geometry();
    let block_bytes = u64::from(geometry.block_bytes);
    let looked_at = (LOOKED_AT_BYTES / block_bytes).min(geometry.blocks);
    let piece_bytes = PIECE_BYTES.min(geometry.transfer_bytes_max);
    let options = ArenaOptions {
        classes: vec![SizeClass {
            size: PIECE_BYTES,
            count: 1,
        }],
        // What no device sees need not be locked.
        locked: DomainId::of(device.domain()) != DomainId::of(&NoDevice::shared()),
        ..ArenaOptions::default()
    };
    let arena = Arena::new(Arc::clone(device.domain()), &options).map_err(no_memory)?;
    let mut queue = device.queue()?;
    for start in [0, geometry.blocks - looked_at] {
        let mut block = start;
        while block < start + looked_at {
            let left = (start + looked_at - block) * block_bytes;
            let len = usize::try_from(left).map_or(piece_bytes, |left| left.min(piece_bytes));
            if !is_zero(&mut *queue, &arena, Lba(block), len)? {
                return Ok(false);
            }
            block += len as u64 / block_bytes;
        }
    }
    Ok(true)
}

fn is_zero(queue: &mut dyn Queue, arena: &Arena, lba: Lba, len: usize) -> Result<bool> {
    let buffer = arena.try_buffer(len).map_err(no_memory)?;
    let read = queue.run(Request::read(lba, buffer, 0));
    let completion = read.map_err(|refused| refused.error)?;
    completion.result?;
    let buffer = completion.buffer.ok_or_else(|| {
        let context = "the device kept the buffer of a read";
        Error::new(ErrorKind::Device, context)
    })?;
    Ok(buffer.iter().all(|byte| *byte == 0))
}

fn no_memory(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(
        ErrorKind::Memory,
        "cannot allocate memory to read the device",
    )
    .caused_by(error)
}

#[cfg(test)]
mod tests {
    use millrace_block::{Image, MemoryDevice};

    use super::*;

    #[test]
    fn one_byte_at_either_end_is_something() {
        for bytes in [64 << 10, 1 << 20, 3 << 20] {
            for block_bytes in [512, 4096] {
                let is_blank_with = |offset: Option<u64>| {
                    let mut image = Image::new(bytes);
                    if let Some(offset) = offset {
                        image.write(offset, &[1]);
                    }
                    let geometry = MemoryDevice::geometry_of(bytes, block_bytes);
                    let device: Arc<dyn Device> =
                        Arc::new(MemoryDevice::on(image, geometry).expect("legal sizes"));
                    is_blank(&device).expect("memory can be read")
                };
                assert!(is_blank_with(None));
                for offset in [0, 1, 32 << 10, bytes - (32 << 10), bytes - 1] {
                    assert!(
                        !is_blank_with(Some(offset)),
                        "{bytes} {block_bytes} {offset}"
                    );
                }
            }
        }
    }
}
