//! Making a volume, and finding one again.

use std::sync::Arc;

use millrace_block::{Deallocation, Device, ErrorKind as DeviceErrorKind, Geometry};

use crate::allocator::{Allocator, Part};
use crate::barrier::Durable;
use crate::checkpoint::write_superblocks;
use crate::format::checkpoint_image::{Decoder, Image, PAGE_BYTES};
use crate::format::damage::Damage;
use crate::format::layout::superblock_units;
use crate::format::replay::{Replay, Replayed};
use crate::format::superblock::{CheckpointPlace, Chosen, JournalTail, Superblock, choose};
use crate::format::{Extent, InodeId, Layout, Metadata, Overlay};
use crate::journal::{Journal, Ring};
use crate::journal_reader::JournalReader;
use crate::lanes::{Lane, Lanes, Piece};
use crate::map::{Map, Place};
use crate::reading::unmapped;
use crate::shared::{Parts, Shared};
use crate::state::State;
use crate::volume::MountOptions;
use crate::{Error, ErrorKind, FormatOptions, Result};

/// Memory for transfers while a volume is made.
const FORMAT_ARENA_BYTES: usize = 1 << 20;
/// A block that cannot be read so many times is given up.
const ATTEMPTS: u32 = 3;

/// Makes an empty volume.
pub(crate) fn format(device: &Arc<dyn Device>, options: &FormatOptions) -> Result<()> {
    let geometry = device.geometry().clone();
    let layout = Layout::plan(geometry.block_bytes, geometry.blocks, options)?;
    let lanes = Lanes::new(Arc::clone(device), FORMAT_ARENA_BYTES)?;
    let allocator = Allocator::new(&layout);
    let mut superblock = Superblock {
        uuid: options.uuid,
        label: options.label.clone(),
        created: options.created,
        layout,
        generation: 1,
        checkpoint: CheckpointPlace {
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
    lanes.with(|lane| {
        // First whatever was there is no volume any more, so that no mixture of the two ever is one.
        let nothing = vec![0; layout.unit_bytes() as usize];
        for unit in layout.superblocks() {
            lane.write(layout.block_of(unit), &nothing, false)?;
        }
        lane.flush()?;
        if geometry.deallocation == Deallocation::Costly {
            // The blocks of a file that were never written cost every sync a change of its metadata.
            write_journal(lane, &layout)?;
        }
        let units = layout.units_of(bytes.len() as u64);
        let mut copies = [Vec::new(), Vec::new()];
        for copy in &mut copies {
            *copy = allocator
                .take_few(units, 1, Part::Front)
                .ok_or_else(no_space)?;
            write_units(lane, &layout, copy, bytes)?;
        }
        lane.flush()?;
        superblock.checkpoint = CheckpointPlace {
            sequence: 0,
            bytes: bytes.len() as u64,
            checksum: image.checksum(),
            copies,
        };
        write_superblocks(&superblock, durable, lane)
    })
}

/// Fills the journal with zeros.
fn write_journal(lane: &mut Lane, layout: &Layout) -> Result<()> {
    let journal = layout.journal();
    let zeros = vec![0; FORMAT_ARENA_BYTES];
    let mut left = layout.journal_units() * u64::from(layout.unit_bytes());
    let mut lba = layout.block_of(journal.start);
    while left > 0 {
        let len = left.min(zeros.len() as u64);
        lane.write(
            lba,
            &zeros[..usize::try_from(len).expect("at most the buffer")],
            false,
        )?;
        lba += len / u64::from(layout.block_bytes());
        left -= len;
    }
    Ok(())
}

/// How a device puts writes on its medium.
pub(crate) const fn durability(geometry: &Geometry) -> Durable {
    match (geometry.volatile_cache, geometry.write_through) {
        (false, _) => Durable::AsWritten,
        (true, true) => Durable::WriteThrough,
        (true, false) => Durable::Flush,
    }
}

/// Writes bytes into extents, padded with zeros to whole blocks.
pub(crate) fn write_units(
    lane: &mut Lane,
    layout: &Layout,
    extents: &[Extent],
    bytes: &[u8],
) -> Result<()> {
    let mut left = bytes;
    for extent in extents {
        let room = u64::from(extent.units) * u64::from(layout.unit_bytes());
        let (here, later) =
            left.split_at(usize::try_from(room).unwrap_or(usize::MAX).min(left.len()));
        let mut padded = here.to_vec();
        padded.resize(
            here.len().next_multiple_of(layout.block_bytes() as usize),
            0,
        );
        lane.write(layout.block_of(extent.start), &padded, false)?;
        left = later;
    }
    if left.is_empty() {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::NoSpace,
        "a checkpoint is longer than its units",
    ))
}

/// What is on a device: all that a mount reads.
pub(crate) struct Found {
    pub(crate) superblock: Superblock,
    /// Which copies of the superblock must be written again.
    pub(crate) stale: [bool; 2],
    pub(crate) metadata: Metadata,
    pub(crate) overlay: Overlay,
    pub(crate) damages: Vec<Damage>,
    /// Where the journal goes on.
    pub(crate) head: u64,
    /// Blocks of transactions that the checkpoint does not contain.
    pub(crate) used: u64,
    /// The last transaction.
    pub(crate) sequence: u64,
    /// A later transaction that stands in the journal behind a damaged one.
    pub(crate) beyond: Option<u64>,
    /// Why the transaction after the last cannot be read, should there be one.
    pub(crate) unreadable: Option<Error>,
}

/// Reads superblock, checkpoint and journal.
pub(crate) fn find(lanes: &Lanes) -> Result<Found> {
    let geometry = lanes.device().geometry();
    let Chosen { superblock, stale } = read_superblocks(lanes, geometry)?;
    let layout = superblock.layout;
    layout.check_device(geometry.block_bytes, geometry.blocks)?;
    lanes.set_block_bytes(layout.block_bytes())?;
    let (metadata, damage) = read_checkpoint(lanes, &superblock)?;
    let tail = superblock.journal_tail;
    let mut reader = JournalReader::new(lanes, &superblock);
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
        let device = lanes.device().name();
        let blocks = rest.unreadable.len();
        tracing::warn!(device, blocks, "parts of the journal cannot be read");
    }
    let Replayed {
        metadata,
        overlay,
        damages,
    } = replay.finish();
    Ok(Found {
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

fn read_superblocks(lanes: &Lanes, geometry: &Geometry) -> Result<Chosen> {
    let unit_bytes = crate::format::layout::unit_bytes_for(geometry.block_bytes)?;
    let unit_blocks = u64::from(unit_bytes / geometry.block_bytes);
    let read = |unit: u64| {
        let mut bytes = vec![0; unit_bytes as usize];
        read_blocks(lanes, unit * unit_blocks, &mut bytes)?;
        Superblock::decode(&bytes)
    };
    let [first, second] = superblock_units(geometry.block_bytes, geometry.blocks);
    choose(read(first), read(second))
}

/// Reads whole blocks.
pub(crate) fn read_blocks(lanes: &Lanes, lba: u64, bytes: &mut [u8]) -> Result<()> {
    let block = lanes.block_bytes();
    let step = lanes.piece_bytes();
    let mut pieces: Vec<_> = Vec::new();
    let mut lba = lba;
    for out in bytes.chunks_mut(step) {
        let blocks = (out.len() / block) as u64;
        pieces.push(Piece {
            lba,
            skip: 0,
            out,
            seal: None,
        });
        lba += blocks;
    }
    lanes.with(|lane| lane.read(&mut pieces))
}

/// Reads the checkpoint: each page from the first copy, or if it is damaged there from the second.
fn read_checkpoint(lanes: &Lanes, superblock: &Superblock) -> Result<(Metadata, Vec<Damage>)> {
    let mut decoder = Decoder::new(superblock);
    for copy in &superblock.checkpoint.copies {
        let missing = (0..decoder.page_count()).any(|number| !decoder.has(number));
        if missing {
            read_copy(lanes, superblock, copy, &mut decoder);
        }
    }
    Ok(decoder.finish())
}

/// Feeds the decoder the pages of one copy that it lacks. What cannot be read is left out.
fn read_copy(lanes: &Lanes, superblock: &Superblock, copy: &[Extent], decoder: &mut Decoder) {
    let layout = &superblock.layout;
    let unit_bytes = layout.unit_bytes() as usize;
    let pages_a_unit = unit_bytes / PAGE_BYTES;
    let mut number = 0;
    let step = (lanes.piece_bytes() / unit_bytes).max(1) * 8;
    for extent in copy {
        let mut unit = extent.start;
        while unit < extent.end() && number < decoder.page_count() {
            let units = (extent.end() - unit).min(step as u64);
            let count = usize::try_from(units).expect("a step") * unit_bytes;
            let mut bytes = vec![0; count];
            if read_blocks(lanes, layout.block_of(unit), &mut bytes).is_err() {
                // One bad block must not cost its neighbours.
                for (index, bytes) in (0..units).zip(bytes.chunks_mut(unit_bytes)) {
                    let _ = read_blocks(lanes, layout.block_of(unit + index), bytes);
                }
            }
            for page in bytes.chunks(PAGE_BYTES) {
                if number < decoder.page_count() && !decoder.has(number) {
                    // A page that is bad in both copies is told by `finish`.
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
    let lanes = Lanes::new(device, options.arena_bytes)?;
    let mut found = find(&lanes)?;
    if !options.read_only {
        refuse_torn_blocks(&found.superblock.layout, lanes.device().geometry())?;
    }
    refuse_damage(&mut found, lanes.device().name(), options.read_only)?;
    let layout = found.superblock.layout;
    let allocator = Allocator::new(&layout);
    hold_all(&allocator, &found)?;
    if !options.read_only && found.stale != [false; 2] {
        // Until both name one checkpoint nothing of the other's is written over.
        let durable = durability(lanes.device().geometry());
        lanes.with(|lane| write_superblocks(&found.superblock, durable, lane))?;
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
        lanes,
    });
    if options.read_only {
        return Ok(shared);
    }
    match recover(&shared, found.used) {
        Ok(()) => Ok(shared),
        Err(error) => {
            // Until all is home the old checkpoint and the journal are what counts.
            shared.abandon();
            Err(error)
        }
    }
}

/// Makes a volume that was found ready for writing.
fn recover(shared: &Shared, journal_blocks: u64) -> Result<()> {
    let mut image_bytes = shared.room.image_bytes();
    if journal_blocks > 0 {
        let sequence = shared.journal.durable();
        let image = Image::new(&shared.state().metadata, shared.key, sequence);
        image_bytes = image.bytes().len() as u64;
    }
    if !shared.room.expect(&shared.allocator, image_bytes) {
        let device = shared.lanes.device().name();
        tracing::warn!(device, "the volume is full: no more files can be made");
    }
    if !shared.overlay.is_empty() {
        bring_overlay_home(shared)?;
    }
    if journal_blocks > 0 {
        shared.checkpoint_now(false)
    } else {
        shared.mark_in_use()
    }
}

/// Refuses to write checksums of blocks that a power cut may leave in halves: they would not fit then.
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

/// Refuses to write to a volume of which something was lost; it can be read.
fn refuse_damage(found: &mut Found, name: &str, read_only: bool) -> Result<()> {
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

/// Takes out of the allocator what files and checkpoint hold.
fn hold_all(allocator: &Allocator, found: &Found) -> Result<()> {
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

/// Writes what transactions carry to its place. Until the next checkpoint the journal has it too.
fn bring_overlay_home(shared: &Shared) -> Result<()> {
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
                let place = map.place(shared.data, shared.key, id, at);
                let place = place.ok_or_else(|| unmapped(id, at))?;
                let run = usize::try_from(place.run).unwrap_or(usize::MAX);
                let (now, later) = left.split_at(run.min(left.len()));
                at += now.len() as u64;
                if let Some(error) = write_home(shared, &place, now, at >= size)? {
                    tracing::error!(%error, file = %id, "a block of a file is lost: what the journal has of it, too");
                }
                left = later;
            }
        }
    }
    Ok(())
}

/// Writes bytes that begin within a block; `is_end` if nothing of the file follows. A block that has other bytes and
/// cannot be read, or is another one, stays as it is, which is returned.
fn write_home(shared: &Shared, place: &Place, bytes: &[u8], is_end: bool) -> Result<Option<Error>> {
    let block = shared.data.payload_bytes();
    let end = place.skip + bytes.len();
    let mut all = vec![0; end.next_multiple_of(block)];
    let count = all.len() / block;
    let last = count - 1;
    let mut written = 0..count;
    let mut lost = None;
    if place.skip > 0 {
        if let Some(error) = read_edge(shared, place, 0, &mut all[..block])? {
            written.start = 1;
            lost = Some(error);
        }
    }
    if end % block != 0 && !is_end && (last > 0 || place.skip == 0) {
        if let Some(error) = read_edge(shared, place, last, &mut all[last * block..])? {
            written.end = last;
            lost = Some(error);
        }
    }
    all[place.skip..end].copy_from_slice(bytes);
    if !written.is_empty() {
        let lba = place.lba + written.start as u64;
        let blocks = place.blocks(&all);
        let blocks = &blocks[written.start * shared.data.block_bytes()..]
            [..written.len() * shared.data.block_bytes()];
        shared.lanes.with(|lane| lane.write(lba, blocks, false))?;
    }
    Ok(lost)
}

/// Reads what the file has in the block that follows `index` blocks after a place; returns why it never will be.
fn read_edge(
    shared: &Shared,
    place: &Place,
    index: usize,
    out: &mut [u8],
) -> Result<Option<Error>> {
    for attempt in 1.. {
        let Err(error) = place.read_block(&shared.lanes, index, out) else {
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
