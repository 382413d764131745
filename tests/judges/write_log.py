"""Reads what QEMU's `blklogwrites` recorded of a disk, and makes the images that a power cut could have left.

The format is that of the kernel's dm-log-writes: a superblock in the first sector, then entries, each a header of one
sector and the data that was written, if any. All numbers are little-endian:

    superblock  magic u64, version u64, entries u64, bytes of a sector u32
    header      sector u64, sectors u64, flags u64, length of a mark u64
    flags       1 flush, 2 write-through (FUA), 4 discard (no data follows), 8 mark

An entry stands where its request had completed on the disk. So whatever had completed before a flush was sent
stands before the flush. What was in flight together with it may stand before it too, and is then taken for
flushed although a disk need not have done so.
"""

import mmap
import os
import struct
from dataclasses import dataclass

MAGIC = 0x6A736677736872
VERSION = 1
SUPERBLOCK = struct.Struct("<QQQI")
HEADER = struct.Struct("<QQQQ")
FLUSH, WRITE_THROUGH, DISCARD = 1, 2, 4
# How likely it is in an image that a write which was not flushed is gone, and that one which is not is torn.
LOST = (0.0, 0.1, 0.5, 0.9, 1.0)
TORN = (0.0, 0.3, 1.0)


class Malformed(Exception):
    """The file is no record, or an incomplete one."""


@dataclass(frozen=True)
class Entry:
    """A request that had completed. All places are in bytes."""

    offset: int
    length: int
    flags: int
    # Where its data and the next entry begin in the record.
    data: int
    end: int

    @property
    def is_flush(self):
        return bool(self.flags & FLUSH)

    @property
    def is_discard(self):
        return bool(self.flags & DISCARD)

    @property
    def is_write_through(self):
        return bool(self.flags & WRITE_THROUGH)


class WriteLog:
    """A record, open for reading."""

    def __init__(self, path):
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size < SUPERBLOCK.size:
                raise Malformed(f"{path}: no superblock: nothing was flushed")
            self.bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        magic, version, flushed, self.sector_bytes = SUPERBLOCK.unpack_from(self.bytes)
        if magic != MAGIC or version != VERSION or self.sector_bytes < HEADER.size:
            raise Malformed(f"{path}: no superblock of version {VERSION}")
        self.entries = list(self._read())
        if len(self.entries) < flushed:
            raise Malformed(f"{path}: {len(self.entries)} of at least {flushed} entries")

    def _read(self):
        """The entries in their order, up to the first that is not whole: QEMU may have been killed over it."""
        at = self.sector_bytes
        while at + self.sector_bytes <= len(self.bytes):
            sector, sectors, flags, _ = HEADER.unpack_from(self.bytes, at)
            if not sectors and not flags or flags & ~(FLUSH | WRITE_THROUGH | DISCARD):
                return
            data = at + self.sector_bytes
            length = sectors * self.sector_bytes
            end = data if flags & DISCARD else data + length
            if end > len(self.bytes):
                return
            yield Entry(sector * self.sector_bytes, length, flags, data, end)
            at = end

    def flushed(self, cut):
        """How many of the first `cut` entries the last flush among them covers, itself included."""
        return next((index + 1 for index in reversed(range(cut)) if self.entries[index].is_flush), 0)

    def pick_cut(self, random, first):
        """A number of entries after which the power goes, not below `first`: any, or one at which the most or the
        least is loose, since a flush or a long write is at hand.

        Of the cuts before flushes those with much that is loose are the likelier ones."""
        entries = range(first, len(self.entries))
        flushes = [index for index in entries if self.entries[index].is_flush]
        kind = random.choice(("any", "before", "after", "long"))
        if kind == "any" or not flushes:
            return random.randint(first, len(self.entries))
        if kind == "long":
            lengths = [self.entries[index].end - self.entries[index].data for index in entries]
            return 1 + random.choices(entries, [1 + length for length in lengths])[0]
        if kind == "after":
            return random.choice(flushes) + 1
        return random.choices(flushes, [1 + (index - self.flushed(index)) ** 2 for index in flushes])[0]

    def materialise(self, path, disk_bytes, cut, random, obeyed=None):
        """Writes an image that a disk could hold when the power went after `cut` entries. Returns how many loose
        requests it could have lost.

        Everything up to the last flush is there. Of what follows any subset is, torn into sectors, in any order
        but for what was written through. A disk that lies obeys none of the flushes after the first `obeyed`
        entries.
        """
        sure = self.flushed(cut if obeyed is None else min(cut, obeyed))
        loose = self.entries[sure:cut]
        # Of every sector that is not zero, where in the record its content is.
        content = {}
        for entry in self.entries[:sure]:
            self._apply(content, entry, range(entry.length // self.sector_bytes))
        lost, torn, shuffled = random.choice(LOST), random.choice(TORN), random.random() < 0.5
        for entry in _in_some_order(loose, random) if shuffled else loose:
            if entry.is_write_through:
                self._apply(content, entry, range(entry.length // self.sector_bytes))
            elif random.random() >= lost:
                self._apply(content, entry, self._survivors(entry, torn, random))
        self._write(path, disk_bytes, content)
        return sum(not entry.is_write_through for entry in loose)

    def _survivors(self, entry, torn, random):
        """Which sectors of a loose request are there: all, a beginning, an end, or some."""
        sectors = entry.length // self.sector_bytes
        if random.random() >= torn:
            return range(sectors)
        split = random.randint(0, sectors)
        some = [sector for sector in range(sectors) if random.random() < 0.5]
        return random.choice((range(split), range(split, sectors), some))

    def _apply(self, content, entry, sectors):
        """Does a part of a request. A discard leaves zeros; a flush has no sectors."""
        first = entry.offset // self.sector_bytes
        for sector in sectors:
            if entry.is_discard:
                content.pop(first + sector, None)
            else:
                content[first + sector] = entry.data + sector * self.sector_bytes

    def _write(self, path, disk_bytes, content):
        """Writes the image, with holes where nothing is."""
        with open(path, "wb") as image:
            image.truncate(disk_bytes)
            for sector in sorted(content):
                image.seek(sector * self.sector_bytes)
                image.write(self.bytes[content[sector] : content[sector] + self.sector_bytes])


def _in_some_order(entries, random):
    """Shuffles loose requests, but none past one that was written through."""
    order, run = [], []
    for entry in entries:
        if entry.is_write_through:
            order += [*random.sample(run, len(run)), entry]
            run = []
        else:
            run.append(entry)
    return order + random.sample(run, len(run))
