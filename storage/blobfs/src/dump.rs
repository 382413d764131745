//! Text dump of all metadata of a volume, for diagnosis.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::ops::Range;
use std::sync::Arc;

use millrace_block::Device;

use crate::check::{CHECK_ARENA_BYTES, Findings, Survey, survey};
use crate::format::operation::Operations;
use crate::format::superblock::Superblock;
use crate::format::{Extent, Metadata};
use crate::io_context::IoContexts;
use crate::{Error, ErrorKind, Result};

/// Writes the metadata of a device's volume as text: the newer superblock, the operations in the journal, the files and
/// directories after these operations, and the inconsistencies found. Writes nothing to the device.
///
/// # Errors
/// As [`check`](crate::check()); [`ErrorKind::Io`] if a write to `out` fails.
pub fn dump(device: &Arc<dyn Device>, out: &mut dyn Write) -> Result<()> {
    let io_contexts = IoContexts::new(Arc::clone(device), CHECK_ARENA_BYTES)?;
    let mut findings = Findings::default();
    let mut journal = Vec::new();
    let found = survey(
        &io_contexts,
        &mut findings,
        &mut |_| {},
        &mut |transaction| {
            write_transaction(
                &mut journal,
                (transaction.sequence, transaction.position),
                transaction.payload,
            )
            .map_err(cannot_write)
        },
    )?;
    let write = |out: &mut dyn Write| {
        write_superblock(out, &found.superblock)?;
        writeln!(out, "\njournal")?;
        out.write_all(&journal)?;
        write_rest(out, &found)?;
        writeln!(out, "\nfiles and directories")?;
        write_metadata(out, &found.metadata)?;
        if !findings.all.is_empty() {
            writeln!(out, "\nfindings")?;
        }
        findings
            .all
            .iter()
            .try_for_each(|finding| writeln!(out, "  {finding}"))
    };
    write(out).map_err(cannot_write)
}

/// Where on the device the files are: for each, by [`Status::id`](crate::Status::id), runs of bytes in the order of
/// the file. They may be more than it has bytes, and checksums of data are among them; what was synced last may still
/// be in the journal.
///
/// # Errors
/// As [`check`](crate::check()).
pub fn extents(device: &Arc<dyn Device>) -> Result<BTreeMap<u64, Vec<Range<u64>>>> {
    let io_contexts = IoContexts::new(Arc::clone(device), CHECK_ARENA_BYTES)?;
    let mut findings = Findings::default();
    let found = survey(&io_contexts, &mut findings, &mut |_| {}, &mut |_| Ok(()))?;
    let layout = found.superblock.layout;
    let bytes = |unit| layout.block_of(unit) * u64::from(layout.block_bytes());
    let files = found.metadata.inodes().map(|(id, record)| {
        let extents = record.extents().iter();
        let runs = extents.map(|extent| bytes(extent.start)..bytes(extent.end()));
        (id.0, runs.collect())
    });
    Ok(files.collect())
}

fn cannot_write(error: io::Error) -> Error {
    Error::new(ErrorKind::Io, "cannot write the dump").caused_by(error)
}

fn write_superblock(out: &mut dyn Write, superblock: &Superblock) -> io::Result<()> {
    let layout = &superblock.layout;
    let uuid: String = superblock
        .uuid
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    writeln!(out, "superblock")?;
    writeln!(out, "  uuid            {uuid}")?;
    writeln!(out, "  label           {:?}", superblock.label)?;
    writeln!(out, "  created         {} ms", superblock.created.0)?;
    writeln!(out, "  generation      {}", superblock.generation)?;
    writeln!(out, "  clean           {}", superblock.clean)?;
    let (blocks, block_bytes) = (layout.blocks(), layout.block_bytes());
    writeln!(out, "  blocks          {blocks} of {block_bytes} bytes")?;
    let (units, unit_bytes) = (layout.units(), layout.unit_bytes());
    writeln!(out, "  units           {units} of {unit_bytes} bytes")?;
    writeln!(out, "  data checksums  {}", layout.data_checksums())?;
    let journal = layout.journal();
    writeln!(
        out,
        "  journal         units {}..{}",
        journal.start, journal.end
    )?;
    let (groups, group_units) = (layout.group_count(), layout.group_units());
    writeln!(out, "  groups          {groups} of {group_units} units")?;
    let tail = superblock.journal_tail;
    writeln!(
        out,
        "  journal tail    transaction {} at block {}",
        tail.sequence, tail.block
    )?;
    let mapping = &superblock.checkpoint;
    writeln!(
        out,
        "  checkpoint      transaction {}, {} bytes, checksum {:08x}",
        mapping.sequence, mapping.bytes, mapping.checksum
    )?;
    for copy in &mapping.copies {
        writeln!(out, "    copy          {}", list(copy))?;
    }
    Ok(())
}

fn list(extents: &[Extent]) -> String {
    let texts: Vec<String> = extents
        .iter()
        .map(|extent| format!("{}..{}", extent.start, extent.end()))
        .collect();
    texts.join(" ")
}

fn write_transaction(
    out: &mut dyn Write,
    (sequence, position): (u64, u64),
    payload: &[u8],
) -> io::Result<()> {
    writeln!(
        out,
        "  transaction {sequence} at block {position}, {} bytes",
        payload.len()
    )?;
    for operation in Operations::new(payload) {
        match operation {
            Ok(operation) => writeln!(out, "    {operation}")?,
            Err(error) => writeln!(out, "    {error}")?,
        }
    }
    Ok(())
}

fn write_rest(out: &mut dyn Write, found: &Survey) -> io::Result<()> {
    writeln!(
        out,
        "  {} transactions, the next one at block {}",
        found.transactions, found.head
    )?;
    for id in found.overlay.files() {
        let segments: Vec<String> = found
            .overlay
            .of(id)
            .map(|(offset, bytes)| format!("{offset}..{}", offset + bytes.len() as u64))
            .collect();
        writeln!(out, "  data of {id}: bytes {}", segments.join(" "))?;
    }
    Ok(())
}

fn write_metadata(out: &mut dyn Write, metadata: &Metadata) -> io::Result<()> {
    writeln!(out, "  next number {}", metadata.next_id().0)?;
    for (id, record) in metadata.inodes() {
        let modified = record.modified().0;
        let Some(entries) = record.entries() else {
            let (size, links) = (record.size(), record.links());
            let units = list(record.extents());
            writeln!(
                out,
                "  {id} file, {size} bytes, {links} names, modified {modified} ms, units {units}"
            )?;
            continue;
        };
        let path = metadata.directory_path(id);
        writeln!(out, "  {id} directory {path:?}, modified {modified} ms")?;
        for (name, child) in entries {
            writeln!(out, "    {child} {name:?}")?;
        }
    }
    Ok(())
}
