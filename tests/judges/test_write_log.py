"""The images that write_log.py makes, against a model that knows nothing of its shortcuts.

    python3 -m unittest test_write_log        in this folder; SEED=N begins at another seed
"""

import os
import random
import struct
import tempfile
import unittest
from pathlib import Path

from write_log import DISCARD, FLUSH, WRITE_THROUGH, Malformed, WriteLog

SECTOR_BYTES = 512
DISK_SECTORS = 24
ROUNDS = 300
FIRST_SEED = int(os.environ.get("SEED", "0"))


def random_requests(chance):
    """Requests (flags, first sector, content of each sector); no two sectors that are written are alike."""
    serial = 0
    for _ in range(chance.randint(1, 40)):
        flags = chance.choice((0, 0, 0, 0, FLUSH, WRITE_THROUGH, DISCARD))
        first = chance.randrange(DISK_SECTORS)
        length = 0 if flags == FLUSH else chance.randint(1, min(6, DISK_SECTORS - first))
        contents = []
        for _ in range(length):
            serial += 1
            contents.append(struct.pack("<Q", serial) * (SECTOR_BYTES // 8))
        yield flags, 0 if flags == FLUSH else first, contents


def record(requests):
    """The requests as QEMU writes them."""
    entries = b""
    for flags, first, contents in requests:
        head = struct.pack("<QQQQ", first, len(contents), flags, 0)
        entries += head.ljust(SECTOR_BYTES, b"\0")
        entries += b"" if flags == DISCARD else b"".join(contents)
    superblock = struct.pack("<QQQI", 0x6A736677736872, 1, len(requests), SECTOR_BYTES)
    return superblock.ljust(SECTOR_BYTES, b"\0") + entries


def possible(requests):
    """What each sector may hold after these requests: a set of contents a sector."""
    zeros = bytes(SECTOR_BYTES)
    sure = [zeros] * DISK_SECTORS
    loose = [set() for _ in range(DISK_SECTORS)]
    latest = [None] * DISK_SECTORS
    for flags, first, contents in requests:
        if flags == FLUSH:
            # In the order of the record the last one wins.
            for sector, held in enumerate(latest):
                sure[sector] = held if held is not None else sure[sector]
            loose = [set() for _ in range(DISK_SECTORS)]
            latest = [None] * DISK_SECTORS
        for number, content in enumerate(contents, start=first):
            content = zeros if flags == DISCARD else content
            latest[number] = content
            if flags == WRITE_THROUGH:
                sure[number], loose[number] = content, set()
            else:
                loose[number].add(content)
    return [{held} | others for held, others in zip(sure, loose, strict=True)]


class Images(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = Path(self.folder.name, "record")
        self.image = Path(self.folder.name, "image")

    def images(self, obeyed=None):
        """Records and images of many seeds: (seed, requests up to the cut, sectors of the image)."""
        for seed in range(FIRST_SEED, FIRST_SEED + ROUNDS):
            chance = random.Random(seed)
            requests = list(random_requests(chance))
            self.path.write_bytes(record(requests))
            log = WriteLog(self.path)
            self.assertEqual(len(log.entries), len(requests), f"seed {seed}")
            cut = log.pick_cut(chance, 0)
            log.materialise(self.image, DISK_SECTORS * SECTOR_BYTES, cut, chance, obeyed)
            data = self.image.read_bytes()
            sectors = [data[at : at + SECTOR_BYTES] for at in range(0, len(data), SECTOR_BYTES)]
            self.assertEqual(len(sectors), DISK_SECTORS, f"seed {seed}")
            yield seed, requests[:cut], sectors

    def test_every_sector_holds_what_it_may(self):
        for seed, requests, sectors in self.images():
            for sector, (held, allowed) in enumerate(zip(sectors, possible(requests), strict=True)):
                self.assertIn(held, allowed, f"seed {seed}, sector {sector}")

    def test_a_disk_that_obeys_no_flush_is_found_out(self):
        caught = [
            seed
            for seed, requests, sectors in self.images(obeyed=0)
            if any(held not in allowed for held, allowed in zip(sectors, possible(requests), strict=True))
        ]
        self.assertGreater(len(caught), ROUNDS // 10)

    def test_what_may_be_lost_is_lost_somewhere_and_kept_somewhere(self):
        seen = {"old": 0, "new": 0, "torn": 0}
        for _, requests, sectors in self.images():
            if not requests or requests[-1][0] or len(requests[-1][2]) < 2:
                continue
            _, first, contents = requests[-1]
            there = [sectors[first + number] == content for number, content in enumerate(contents)]
            seen["new" if all(there) else "torn" if any(there) else "old"] += 1
        self.assertGreater(min(seen.values()), 0, seen)

    def test_an_image_follows_from_its_seed(self):
        first = [sectors for _, _, sectors in self.images()]
        self.assertEqual(first, [sectors for _, _, sectors in self.images()])

    def test_a_record_that_ends_amid_an_entry_ends_before_it(self):
        whole = record([(0, 1, [b"a" * SECTOR_BYTES]), (FLUSH, 0, []), (0, 2, [b"b" * SECTOR_BYTES] * 3)])
        flushed = struct.pack("<QQQI", 0x6A736677736872, 1, 2, SECTOR_BYTES)
        whole = flushed + whole[len(flushed) :]
        for length in range(4 * SECTOR_BYTES, len(whole)):
            self.path.write_bytes(whole[:length])
            self.assertEqual(len(WriteLog(self.path).entries), 2, length)
        self.path.write_bytes(whole)
        self.assertEqual(len(WriteLog(self.path).entries), 3)
        self.path.write_bytes(whole[: 3 * SECTOR_BYTES])
        self.assertRaises(Malformed, WriteLog, self.path)

    def test_what_is_no_record_is_refused(self):
        for content in (b"", b"x" * 4096, bytes(4096)):
            self.path.write_bytes(content)
            self.assertRaises(Malformed, WriteLog, self.path)


if __name__ == "__main__":
    unittest.main()
