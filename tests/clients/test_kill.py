"""A server that is killed keeps every write it acknowledged.

Writers insert, update and delete while the server is killed again and again (SIGKILL). After each restart
everything acknowledged must be there, and documents, indexes and counters must agree. A killed process
does not lose the operating system's page cache, so the same runs on a file layer that forgets, with the
process, whatever was not synced; and on a device, where the file system is in the process, too.

KILLS sets how often (100 unless given), SEED the seed of the moments.
"""

import os
import random
import tempfile
import threading
import unittest

import pymongo
from pymongo.errors import PyMongoError

from server import Server

KILLS = int(os.environ.get("KILLS", "100"))
SEED = int(os.environ.get("SEED", "1"))
WRITERS = 4
DEVICE_BYTES = 2 << 30
# The log is cut at 64 MiB a memtable; a recovery that reads more than this is not bounded.
REPLAYED_BYTES_MAX = 512 << 20


class Writer(threading.Thread):
    """Writes documents of its own until the server is gone, and remembers what was acknowledged."""

    def __init__(self, uri, number, known):
        super().__init__()
        self.uri, self.number, self.known = uri, number, known
        self.acknowledged = 0
        self.enough = threading.Event()

    def run(self):
        known = self.known
        try:
            with pymongo.MongoClient(self.uri, retryWrites=False, serverSelectionTimeoutMS=2000) as client:
                documents, counters = client.kill.documents, client.kill.counters
                while True:
                    n = known["next"]
                    known["next"] += 1
                    documents.insert_one({"_id": f"{self.number}-{n}", "u": f"u{self.number}-{n}",
                                          "k": [n % 7, n % 11], "pad": "x" * (n % 500)})
                    known["present"].add(n)
                    if n % 3 == 0:
                        known["counter_tried"] += 1
                        counters.update_one({"_id": self.number}, {"$inc": {"n": 1}}, upsert=True)
                        known["counter"] = known["counter_tried"]
                    if n % 5 == 0 and n >= 5:
                        known["deleting"] = n - 5
                        known["present"].discard(n - 5)
                        documents.delete_one({"_id": f"{self.number}-{n - 5}"})
                        known["deleting"] = None
                        known["deleted"].add(n - 5)
                    self.acknowledged += 1
                    if self.acknowledged >= 3:
                        self.enough.set()
        except PyMongoError:
            pass
        finally:
            self.enough.set()


class Killed(unittest.TestCase):
    def check(self, client, writers):
        documents = client.kill.documents
        for number, known in writers.items():
            stored = {int(d["_id"].split("-")[1]) for d in
                      documents.find({"_id": {"$gte": f"{number}-", "$lt": f"{number}."}}, {"_id": 1})}
            lost = known["present"] - stored
            self.assertFalse(lost, f"writer {number}: acknowledged insertions are lost: {sorted(lost)[:9]}")
            back = known["deleted"] & stored
            self.assertFalse(back, f"writer {number}: acknowledged deletions are undone: {sorted(back)[:9]}")
            # What was under way when the server was killed may have happened or not.
            known["present"] |= stored - ({known["deleting"]} if known["deleting"] is not None else set())
            known["present"] &= stored
            counter = (client.kill.counters.find_one({"_id": number}) or {"n": 0})["n"]
            self.assertTrue(known["counter"] <= counter <= known["counter_tried"],
                            f"writer {number}: {known['counter']} updates were acknowledged, "
                            f"{known['counter_tried']} tried, the counter says {counter}")
            known["counter"] = known["counter_tried"] = counter
        for name in ("documents", "counters"):
            result = client.kill.validate_collection(name)
            self.assertTrue(result["valid"], result)

    def run_kills(self, kills, *options):
        moments = random.Random(SEED)
        writers = {n: {"next": 0, "present": set(), "deleted": set(), "deleting": None,
                       "counter": 0, "counter_tried": 0} for n in range(WRITERS)}
        server = Server(*options).start()
        self.addCleanup(server.kill)
        with pymongo.MongoClient(server.uri) as client:
            client.kill.documents.create_index("u", unique=True)
            client.kill.documents.create_index("k")
            client.kill.counters.insert_one({"_id": "made"})
        replayed_max = 0
        for _ in range(kills):
            threads = [Writer(server.uri, n, known) for n, known in writers.items()]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.enough.wait()
            # Some seeded amount of further work, counted in acknowledgements of one writer.
            target = threads[0].acknowledged + moments.randrange(1, 60)
            while threads[0].is_alive() and threads[0].acknowledged < target:
                threads[0].join(0.001)
            server.kill()
            for thread in threads:
                thread.join()
            server.start()
            with pymongo.MongoClient(server.uri) as client:
                self.check(client, writers)
                replayed = client.admin.command("serverStatus")["rocksdb"]["wal_replayed_bytes"]
                replayed_max = max(replayed_max, replayed)
        self.assertLess(replayed_max, REPLAYED_BYTES_MAX)
        total = sum(len(known["present"]) for known in writers.values())
        self.assertGreater(total, kills, "the writers hardly got to write")
        print(f"{kills} kills (seed {SEED}), {total} documents, "
              f"at most {replayed_max} bytes of log replayed")
        server.stop()

    def test_kill(self):
        self.run_kills(KILLS)

    def test_kill_on_a_file_layer_that_forgets(self):
        self.run_kills(KILLS, "--setParameter", "enableTestCommands=1", "--testFileSystem", "unsyncedLoss")

    def test_kill_on_a_device(self):
        folder = tempfile.TemporaryDirectory(prefix="millrace-")
        self.addCleanup(folder.cleanup)
        image = os.path.join(folder.name, "disk.img")
        with open(image, "wb") as file:
            file.truncate(DEVICE_BYTES)
        self.run_kills(KILLS, "--device", f"file:{image}", "--format")


if __name__ == "__main__":
    unittest.main()
