//! Formatting and mounting of a volume.

use std::sync::Arc;

use millrace_block::{Deallocation, Device, ErrorKind as DeviceErrorKind, Geometry};

use crate::allocator::{Allocator, SearchStart};
use crate::format::checkpoint_image::{Decoder, Image, PAGE_BYTES};
use crate::format::damage::Damage;
use crate::format::layout::superblock_units;
use crate::format::replay::{Replay, Replayed};
use crate::format::superblock::{CheckpointLocation, Chosen, JournalTail, Superblock, choose};
use crate::format::{Extent, InodeId, Layout, Metadata, Overlay};
use crate::io::{durability, no_mapping, read_blocks, write_superblocks, write_units};
use crate::io_context::{IoContext, IoContexts};
use crate::journal::{Journal, Ring};
use crate::journal_reader::JournalReader;
use crate::map::{BlockMapping, Map};
use crate::shared::{Parts, Shared};
use crate::state::State;
use crate::types::MountOptions;
use crate::{Error, ErrorKind, FormatOptions, Result};

/// Transfer memory, in bytes, for formatting.
const FORMAT_ARENA_BYTES: usize = 1 << 20;
/// Attempts to read a block before it is given up.
const ATTEMPTS: u32 = 3;

/// Makes an empty volume.
pub(crate) fn format(device: &Arc<dyn Device>, options: &FormatOptions) -> Result<()> {
    let geometry = device.geometry().clone();
    let layout = Layout::plan(geometry.block_bytes, geometry.blocks, options)?;
    let io_contexts = IoContexts::new(Arc::clone(device), FORMAT_ARENA_BYTES)?;
    let allocator = Allocator::new(&layout);
    let mut superblock = Superblock {
        uuid: options.uuid,
        label: options.label.clone(),
        created: options.created,
        layout,
        generation: 1,
        checkpoint: CheckpointLocation {
            sequence: 0,
            bytes: 0,
            checksum: 0,
            copies: [Vec::new(), Vec::new()],
        },
        journal_tail: JournalTail {
            block: 0,
            sequence: 1,
        },
        clean: true,
    };
    let image = Image::new(&Metadata::new(layout), superblock.key(), 0);
    let bytes = image.bytes();
    let durable = durability(&geometry);
    let no_space = || Error::new(ErrorKind::Invalid, "the device is too small for a volume");
    io_contexts.with(|io| {
        // Erase both superblocks first, so that no mixture of the old and the new volume is ever valid.
        let nothing = vec![0; layout.unit_bytes() as usize];
        for unit in layout.superblocks() {
            io.write(layout.block_of(unit), &nothing, false)?;
        }
        io.flush()?;
        if geometry.deallocation == Deallocation::Costly {
            // In a sparse backing file each first write of a block would cost a sync a metadata change.
            write_journal(io, &layout)?;
        }
        let units = layout.units_of(bytes.len() as u64);
        let mut copies = [Vec::new(), Vec::new()];
        for copy in &mut copies {
            *copy = allocator
                .take_few(units, 1, SearchStart::FirstGroup)
                .ok_or_else(no_space)?;
            write_units(io, &layout, copy, bytes)?;
        }
        io.flush()?;
        superblock.checkpoint = CheckpointLocation {
            sequence: 0,
            bytes: bytes.len() as u64,
            checksum: image.checksum(),
            copies,
        };
        write_superblocks(&superblock, durable, io)
    })
}

/// Fills the journal with zeros.
fn write_journal(io: &mut IoContext, layout: &Layout) -> Result<()> {
    let journal = layout.journal();
    let zeros = vec![0; FORMAT_ARENA_BYTES];
    let mut left = layout.journal_units() * u64::from(layout.unit_bytes());
    let mut lba = layout.block_of(journal.start);
    while left > 0 {
        let len = left.min(zeros.len() as u64);
        io.write(
            lba,
            &zeros[..usize::try_from(len).expect("at most the buffer")],
            false,
        )?;
        lba += len / u64::from(layout.block_bytes());
        left -= len;
    }
    Ok(())
}

/// On-disk state of a volume, as a mount reads it.
pub(crate) struct OnDiskState {
    pub(crate) superblock: Superblock,
    /// Copies of the superblock that must be rewritten.
    pub(crate) stale: [bool; 2],
    pub(crate) metadata: Metadata,
    pub(crate) overlay: Overlay,
    pub(crate) damages: Vec<Damage>,
    /// Block of the journal at which it continues.
    pub(crate) head: u64,
    /// Blocks of transactions that the checkpoint does not contain.
    pub(crate) used: u64,
    /// Number of the last transaction.
    pub(crate) sequence: u64,
    /// Number of a later transaction that follows a damaged one in the journal.
    pub(crate) beyond: Option<u64>,
    /// Error of reading the transaction after the last, if there may be one.
    pub(crate) unreadable: Option<Error>,
}

/// Reads superblock, checkpoint and journal.
pub(crate) fn find(io_contexts: &IoContexts) -> Result<OnDiskState> {
    let geometry = io_contexts.device().geometry();
    let Chosen { superblock, stale } = read_superblocks(io_contexts, geometry)?;
    let layout = superblock.layout;
    layout.check_device(geometry.block_bytes, geometry.blocks)?;
    io_contexts.set_block_bytes(layout.block_bytes())?;
    let (metadata, damage) = read_checkpoint(io_contexts, &superblock)?;
    let tail = superblock.journal_tail;
    let mut reader = JournalReader::new(io_contexts, &superblock);
    let mut replay = Replay::new(metadata, damage);
    let mut sequence = tail.sequence.saturating_sub(1);
    let mut unreadable = None;
    loop {
        match reader.next() {
            Ok(Some(payload)) => replay.apply_transaction(payload)?,
            Ok(None) => break,
            Err(error) if error.kind() == ErrorKind::Io => {
                unreadable = Some(error);
                break;
            }
            Err(error) => return Err(error),
        }
        sequence += 1;
    }
    let (head, used) = (reader.head(), reader.used());
    let rest = reader.probe_rest();
    let beyond = rest.beyond;
    if !rest.unreadable.is_empty() {
        let device = io_contexts.device().name();
        let blocks = rest.unreadable.len();
        tracing::warn!(device, blocks, "parts of the journal cannot be read");
    }
    let Replayed {
        metadata,
        overlay,
        damages,
    } = replay.finish();
    Ok(OnDiskState {
        superblock,
        stale,
        metadata,
        overlay,
        damages,
        head,
        used,
        sequence,
        beyond,
        unreadable,
    })
}

fn read_superblocks(io_contexts: &IoContexts, geometry: &Geometry) -> Result<Chosen> {
    let unit_bytes = crate::format::layout::unit_bytes_for(geometry.block_bytes)?;
    let unit_blocks = u64::from(unit_bytes / geometry.block_bytes);
    let read = |unit: u64| {
        let mut bytes = vec![0; unit_bytes as usize];
        read_blocks(io_contexts, unit * unit_blocks, &mut bytes)?;
        Superblock::decode(&bytes)
    };
    let [first, second] = superblock_units(geometry.block_bytes, geometry.blocks);
    choose(read(first), read(second))
}

/// Reads the checkpoint: each page from the first copy, or from the second if the first is damaged.
fn read_checkpoint(
    io_contexts: &IoContexts,
    superblock: &Superblock,
) -> Result<(Metadata, Vec<Damage>)> {
    let mut decoder = Decoder::new(superblock);
    for copy in &superblock.checkpoint.copies {
        let missing = (0..decoder.page_count()).any(|number| !decoder.has(number));
        if missing {
            read_copy(io_contexts, superblock, copy, &mut decoder);
        }
    }
    Ok(decoder.finish())
}

/// Feeds the decoder the missing pages from one copy. Unreadable pages are left out.
fn read_copy(
    io_contexts: &IoContexts,
    superblock: &Superblock,
    copy: &[Extent],
    decoder: &mut Decoder,
) {
    let layout = &superblock.layout;
    let unit_bytes = layout.unit_bytes() as usize;
    let pages_a_unit = unit_bytes / PAGE_BYTES;
    let mut number = 0;
    let step = (io_contexts.piece_bytes() / unit_bytes).max(1) * 8;
    for extent in copy {
        let mut unit = extent.start;
        while unit < extent.end() && number < decoder.page_count() {
            let units = (extent.end() - unit).min(step as u64);
            let count = usize::try_from(units).expect("a step") * unit_bytes;
            let mut bytes = vec![0; count];
            if read_blocks(io_contexts, layout.block_of(unit), &mut bytes).is_err() {
                // One unreadable block must not make its neighbours unreadable.
                for (index, bytes) in (0..units).zip(bytes.chunks_mut(unit_bytes)) {
                    let _ = read_blocks(io_contexts, layout.block_of(unit + index), bytes);
                }
            }
            for page in bytes.chunks(PAGE_BYTES) {
                if number < decoder.page_count() && !decoder.has(number) {
                    // `finish` reports pages that are damaged in both copies.
                    let _ = decoder.page(number, page);
                }
                number += 1;
            }
            unit += units;
        }
        debug_assert!(pages_a_unit > 0);
    }
}

/// Mounts a volume.
pub(crate) fn mount(device: Arc<dyn Device>, options: MountOptions) -> Result<Shared> {
    let io_contexts = IoContexts::new(device, options.arena_bytes)?;
    let mut found = find(&io_contexts)?;
    if !options.read_only {
        refuse_torn_blocks(&found.superblock.layout, io_contexts.device().geometry())?;
    }
    refuse_damage(&mut found, io_contexts.device().name(), options.read_only)?;
    let layout = found.superblock.layout;
    let allocator = Allocator::new(&layout);
    hold_all(&allocator, &found)?;
    if !options.read_only && found.stale != [false; 2] {
        // The other copy's units are not overwritten before both copies name the same checkpoint.
        let durable = durability(io_contexts.device().geometry());
        io_contexts.with(|io| write_superblocks(&found.superblock, durable, io))?;
    }
    let ring = Ring {
        blocks: layout.journal_blocks(),
        head: found.head,
        used: found.used,
    };
    let shared = Shared::new(Parts {
        allocator,
        journal: Journal::new(ring, found.sequence),
        superblock: found.superblock,
        clock: options.clock,
        read_only: options.read_only,
        discard: options.discard,
        overlay: found.overlay,
        state: State::new(found.metadata, found.sequence + 1),
        io_contexts,
    });
    if options.read_only {
        return Ok(shared);
    }
    match recover(&shared, found.used) {
        Ok(()) => Ok(shared),
        Err(error) => {
            // Until everything is written back, the old checkpoint and the journal stay valid.
            shared.abandon();
            Err(error)
        }
    }
}

/// Recovers the volume for writing: writes journaled data back and makes a checkpoint.
fn recover(shared: &Shared, journal_blocks: u64) -> Result<()> {
    let mut image_bytes = shared.reservation.image_bytes();
    if journal_blocks > 0 {
        let sequence = shared.journal.durable();
        let image = Image::new(&shared.state().metadata, shared.key, sequence);
        image_bytes = image.bytes().len() as u64;
    }
    if !shared.reservation.expect(&shared.allocator, image_bytes) {
        let device = shared.io_contexts.device().name();
        tracing::warn!(device, "the volume is full: no more files can be made");
    }
    if !shared.overlay.is_empty() {
        write_back_overlay(shared)?;
    }
    if journal_blocks > 0 {
        shared.checkpoint_now(false)
    } else {
        shared.mark_in_use()
    }
}

/// Refuses to write block checksums to a device that may tear a block on a power cut: torn blocks would not match.
pub(crate) fn refuse_torn_blocks(layout: &Layout, geometry: &Geometry) -> Result<()> {
    let atomic_bytes = u64::from(geometry.atomic_blocks) * u64::from(geometry.block_bytes);
    let block_bytes = layout.block_bytes();
    if !layout.data_checksums() || atomic_bytes >= u64::from(block_bytes) {
        return Ok(());
    }
    let context = format!(
        "the volume has checksums of data for each {block_bytes} bytes, and the device writes only {atomic_bytes} as a \
         whole: mount it for reading only"
    );
    Err(Error::new(ErrorKind::Unsupported, context))
}

/// Refuses to write to a volume that has lost data; it can be mounted read-only.
fn refuse_damage(found: &mut OnDiskState, name: &str, read_only: bool) -> Result<()> {
    for damage in &found.damages {
        tracing::error!(device = name, %damage, "metadata is lost in both copies");
    }
    let sequence = found.sequence;
    let mut errors = Vec::new();
    if let Some(error) = found.unreadable.take() {
        let context = format!(
            "the journal of {name} cannot be read after transaction {sequence}, and more may follow; \
             `millrace blobfs check --repair {name}` keeps what comes before"
        );
        errors.push(Error::new(ErrorKind::Corruption, context).caused_by(error));
    }
    if let Some(beyond) = found.beyond {
        let context = format!(
            "the journal of {name} is damaged after transaction {sequence}: transaction {beyond} follows; \
             `millrace blobfs check --repair {name}` keeps what comes before"
        );
        errors.push(Error::new(ErrorKind::Corruption, context));
    }
    if let Some(damage) = found.damages.first() {
        let context = format!(
            "metadata of {name} is lost in both copies ({damage}): mount it for reading only, or see \
             `millrace blobfs check {name}`"
        );
        errors.push(Error::new(ErrorKind::Corruption, context));
    }
    if read_only {
        for error in errors {
            tracing::error!(device = name, %error, "the volume is damaged");
        }
        return Ok(());
    }
    errors.into_iter().next().map_or(Ok(()), Err)
}

/// Allocates the units that files and the checkpoint hold.
fn hold_all(allocator: &Allocator, found: &OnDiskState) -> Result<()> {
    let files = found
        .metadata
        .inodes()
        .flat_map(|(_, record)| record.extents());
    let checkpoint = found.superblock.checkpoint.copies.iter().flatten();
    for extent in files.chain(checkpoint) {
        if !allocator.hold(*extent) {
            let context = format!("{extent} is held twice, or lies outside of the volume");
            return Err(Error::new(ErrorKind::Corruption, context));
        }
    }
    Ok(())
}

/// Writes journaled data back to its final location. The journal also holds it until the next checkpoint.
fn write_back_overlay(shared: &Shared) -> Result<()> {
    for id in shared.overlay.files().collect::<Vec<InodeId>>() {
        let (map, size) = {
            let state = shared.state();
            let record = state.metadata.inode(id)?;
            (Map::new(record.extents()), record.size())
        };
        for (offset, bytes) in shared.overlay.of(id) {
            let mut at = offset;
            let mut left = bytes;
            while !left.is_empty() {
                let mapping = map.mapping(shared.data, shared.key, id, at);
                let mapping = mapping.ok_or_else(|| no_mapping(id, at))?;
                let run = usize::try_from(mapping.run).unwrap_or(usize::MAX);
                let (now, later) = left.split_at(run.min(left.len()));
                at += now.len() as u64;
                if let Some(error) = write_back(shared, &mapping, now, at >= size)? {
                    tracing::error!(%error, file = %id, "a block of a file is lost: what the journal has of it, too");
                }
                left = later;
            }
        }
    }
    Ok(())
}

/// Writes bytes that begin within a block; `is_end` if they end the file. A partial block whose other bytes are
/// unreadable or do not match stays as it is, and the error is returned.
fn write_back(
    shared: &Shared,
    mapping: &BlockMapping,
    bytes: &[u8],
    is_end: bool,
) -> Result<Option<Error>> {
    let block = shared.data.payload_bytes();
    let end = mapping.skip + bytes.len();
    let mut all = vec![0; end.next_multiple_of(block)];
    let count = all.len() / block;
    let last = count - 1;
    let mut written = 0..count;
    let mut lost = None;
    if mapping.skip > 0 {
        if let Some(error) = read_edge(shared, mapping, 0, &mut all[..block])? {
            written.start = 1;
            lost = Some(error);
        }
    }
    if end % block != 0 && !is_end && (last > 0 || mapping.skip == 0) {
        if let Some(error) = read_edge(shared, mapping, last, &mut all[last * block..])? {
            written.end = last;
            lost = Some(error);
        }
    }
    all[mapping.skip..end].copy_from_slice(bytes);
    if !written.is_empty() {
        let lba = mapping.lba + written.start as u64;
        let blocks = mapping.encode_blocks(&all);
        let blocks = &blocks[written.start * shared.data.block_bytes()..]
            [..written.len() * shared.data.block_bytes()];
        shared.io_contexts.with(|io| io.write(lba, blocks, false))?;
    }
    Ok(lost)
}

/// Reads the file's bytes in the block `index` blocks after a mapping; returns the error if it is permanent.
fn read_edge(
    shared: &Shared,
    mapping: &BlockMapping,
    index: usize,
    out: &mut [u8],
) -> Result<Option<Error>> {
    for attempt in 1.. {
        let Err(error) = mapping.read_block(&shared.io_contexts, index, out) else {
            break;
        };
        if error.kind() == ErrorKind::Corruption {
            return Ok(Some(error));
        }
        let source = std::error::Error::source(&error);
        let source = source.and_then(|source| source.downcast_ref::<millrace_block::Error>());
        let is_bad = |source: &millrace_block::Error| source.kind() == DeviceErrorKind::Medium;
        if !source.is_some_and(is_bad) {
            return Err(error);
        }
        if attempt == ATTEMPTS {
            return Ok(Some(error));
        }
    }
    Ok(None)
}
