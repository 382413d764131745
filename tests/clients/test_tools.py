"""MongoDB's database tools: what is dumped or exported comes back as it was, and the monitors show a server at work."""

import datetime
import json
import os
import subprocess
import tempfile
import unittest
import uuid
from pathlib import Path

import bson
import pymongo
from bson.binary import Binary
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument

from server import Server

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "millrace"
TOOLS = CACHE / "mongo-tools"
RAW = CodecOptions(document_class=RawBSONDocument)

EVERY_TYPE = {
    "double": 1.5, "infinity": float("inf"), "string": "grüße\x00", "document": {"a": {"b": 1}},
    "array": [1, [2, {"c": None}]], "binary": b"\x00\x01", "uuid": Binary.from_uuid(uuid.UUID(int=7)),
    "object_id": bson.ObjectId("0123456789abcdef01234567"), "bool": True,
    "date": datetime.datetime(1969, 1, 2, 3, 4, 5, 678000), "null": None, "regex": bson.Regex("^a/", "im"),
    "code": bson.Code("f()"), "code_with_scope": bson.Code("f()", {"x": 1}), "int": -(2**31),
    "timestamp": bson.Timestamp(1, 2), "zero_timestamp": bson.Timestamp(0, 0), "long": bson.Int64(2**62),
    "decimal": bson.Decimal128("-1.10E+7"), "min": bson.MinKey(), "max": bson.MaxKey(), "": "no name",
}


def tool(name, server, *arguments):
    """Runs a tool to its end and returns what it prints."""
    command = [str(TOOLS / name), f"--uri={server.uri}", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if result.returncode != 0:
        raise AssertionError(f"{' '.join(command)} ended with {result.returncode}:\n{result.stderr}")
    return result.stdout


class Tools(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not (TOOLS / "version").exists():
            raise RuntimeError("the database tools are not installed: run scripts/setup clients")
        cls.server = Server().start()
        cls.client = pymongo.MongoClient(cls.server.uri)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        cls.server.stop()

    def setUp(self):
        self.database = self.client.test
        self.client.drop_database("test")
        self.folder = tempfile.TemporaryDirectory(prefix="millrace-tools-")
        self.place = Path(self.folder.name)
        mills = self.database.mills
        # A replacement of the server's would put the present time in the place of the zero timestamp.
        self.database.command(
            "insert", "mills", documents=[{"_id": 0, **EVERY_TYPE}, {"_id": "x" * 100, "long": "y" * 100_000}],
            bypassEmptyTsReplacement=True)
        mills.insert_many([{"_id": n, "n": n % 7, "s": str(n)} for n in range(1, 3000)])
        mills.create_index([("n", 1), ("s", -1)], name="by_n")
        mills.create_index("s", unique=True, partialFilterExpression={"s": {"$gt": "1"}})
        self.database.create_collection("empty", capped=True, size=4096)

    def tearDown(self):
        self.folder.cleanup()

    def content(self):
        """All documents as their bytes, all indexes, and the options of the collections."""
        documents = self.database.get_collection("mills", RAW).find().sort("_id", 1)
        options = {c["name"]: c["options"] for c in self.database.list_collections()}
        return [d.raw for d in documents], self.database.mills.index_information(), options

    def round_trip(self, dump, restore):
        """Dumps, spoils the collection, restores with --drop and compares."""
        before = self.content()
        self.assertEqual(len(before[0]), 3001)
        tool("mongodump", self.server, "--db=test", *dump)
        self.database.mills.update_many({"n": {"$lt": 3}}, {"$set": {"n": -1}})
        self.database.mills.delete_many({"n": 5})
        self.database.mills.insert_one({"_id": "later"})
        self.database.mills.drop_index("by_n")
        tool("mongorestore", self.server, "--drop", *restore)
        self.assertEqual(self.content(), before)
        self.assertTrue(self.database.validate_collection("mills")["valid"])

    def test_a_folder_comes_back(self):
        self.round_trip([f"--out={self.place}"], [str(self.place)])

    def test_a_compressed_folder_comes_back(self):
        self.round_trip(["--gzip", f"--out={self.place}"], ["--gzip", str(self.place)])

    def test_a_compressed_archive_comes_back(self):
        archive = f"--archive={self.place / 'test.archive.gz'}"
        self.round_trip([archive, "--gzip"], [archive, "--gzip"])

    def test_an_archive_is_restored_under_another_name(self):
        archive = f"--archive={self.place / 'test.archive'}"
        tool("mongodump", self.server, "--db=test", archive)
        self.client.drop_database("copy")
        tool("mongorestore", self.server, archive, "--nsFrom=test.*", "--nsTo=copy.*")
        before = self.content()
        self.database = self.client.copy
        self.assertEqual(self.content(), before)
        self.client.drop_database("copy")

    def test_an_export_is_imported(self):
        before = self.content()[0]
        file = str(self.place / "mills.json")
        namespace = ["--db=test", "--collection=mills"]
        # The canonical form keeps the types of numbers.
        tool("mongoexport", self.server, *namespace, "--jsonFormat=canonical", f"--out={file}")
        self.database.mills.insert_one({"_id": "later"})
        tool("mongoimport", self.server, *namespace, "--drop", f"--file={file}")
        self.assertEqual(self.content()[0], before)
        # Over what is there: some documents differ, some are missing.
        self.database.mills.update_many({"n": 3}, {"$set": {"n": 30}})
        self.database.mills.delete_many({"n": 4})
        tool("mongoimport", self.server, *namespace, "--mode=upsert", f"--file={file}")
        self.assertEqual(self.content()[0], before)

    def test_a_query_is_exported_as_csv(self):
        out = tool("mongoexport", self.server, "--db=test", "--collection=mills", "--type=csv",
                   "--fields=_id,s", '--query={"_id": {"$gte": 7, "$lt": 9}}', "--sort={_id: 1}")
        self.assertEqual(out.split(), ["_id,s", "7,7", "8,8"])

    def test_mongostat_shows_a_row(self):
        out = tool("mongostat", self.server, "--rowcount=1", "--json")
        (row,) = json.loads(out).values()
        self.assertEqual(row.get("error"), None)
        for column in ["insert", "query", "update", "delete", "getmore", "command", "conn", "net_in", "net_out"]:
            self.assertIn(column, row)

    def test_mongotop_is_told_that_there_is_no_top(self):
        # The server keeps no times by collection.
        with self.assertRaisesRegex(AssertionError, "no such command: 'top'"):
            tool("mongotop", self.server, "--rowcount=1", "1")
