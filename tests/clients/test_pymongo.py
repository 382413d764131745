"""Everyday work through PyMongo."""

import datetime
import threading
import unittest

import bson
import pymongo
from pymongo.errors import BulkWriteError, DuplicateKeyError, OperationFailure, WriteError

from server import Server


class EverydayWork(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server().start()
        cls.client = pymongo.MongoClient(cls.server.uri)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        cls.server.stop()

    def setUp(self):
        self.client.drop_database("test")
        self.mills = self.client.test.mills

    def test_documents_come_back_as_they_went_in(self):
        document = {
            "_id": bson.ObjectId(), "int": 1, "long": bson.Int64(2**40), "double": 1.5,
            "string": "grüße", "nested": {"a": [1, {"b": None}]}, "bool": True,
            "date": datetime.datetime(2026, 1, 2, 3, 4, 5, 678000), "binary": b"\x00\x01",
            "regex": bson.Regex("^a", "i"), "decimal": bson.Decimal128("1.10"),
            "timestamp": bson.Timestamp(1, 2), "min": bson.MinKey(), "max": bson.MaxKey(),
            "code": bson.Code("x"),
        }
        self.mills.insert_one(document)
        self.assertEqual(self.mills.find_one(document["_id"]), document)

    def test_queries_sorts_and_cursors(self):
        self.mills.insert_many([{"_id": n, "n": n % 7, "s": str(n)} for n in range(1000)])
        found = list(self.mills.find({"n": {"$in": [1, 2]}, "_id": {"$gte": 100}})
                     .sort([("n", -1), ("_id", 1)]).batch_size(17))
        expected = sorted((n for n in range(100, 1000) if n % 7 in (1, 2)),
                          key=lambda n: (-(n % 7), n))
        self.assertEqual([d["_id"] for d in found], expected)
        self.assertEqual(self.mills.count_documents({"n": 3}), len(range(3, 1000, 7)))
        self.assertEqual(self.mills.estimated_document_count(), 1000)
        self.assertEqual(self.mills.distinct("n"), list(range(7)))
        self.assertEqual(
            list(self.mills.find({"_id": 5}, {"s": 1, "_id": 0})), [{"s": "5"}])

    def test_indexes_serve_queries_and_keep_unique(self):
        self.mills.insert_many([{"a": n, "b": n % 10} for n in range(500)])
        name = self.mills.create_index([("b", 1), ("a", -1)])
        plan = self.mills.find({"b": 3, "a": {"$gt": 100}}).explain()
        self.assertIn("IXSCAN", str(plan["queryPlanner"]["winningPlan"]))
        self.assertEqual(self.mills.count_documents({"b": 3, "a": {"$gt": 100}}), 40)
        self.mills.create_index("a", unique=True)
        with self.assertRaises(DuplicateKeyError) as caught:
            self.mills.insert_one({"a": 7})
        self.assertEqual(caught.exception.details["keyValue"], {"a": 7})
        with self.assertRaises(DuplicateKeyError):
            self.mills.create_index("b", unique=True)
        self.mills.drop_index(name)
        self.assertEqual(set(self.mills.index_information()), {"_id_", "a_1"})

    def test_updates(self):
        self.mills.insert_one({"_id": 1, "n": 1, "list": [1, 2, 3], "in": {"a": 1}})
        self.mills.update_one({"_id": 1}, {
            "$inc": {"n": 4}, "$push": {"list": {"$each": [9, 8], "$position": 1}},
            "$set": {"in.b": 2}, "$currentDate": {"when": True}})
        found = self.mills.find_one({"_id": 1})
        self.assertEqual((found["n"], found["list"], found["in"]), (5, [1, 9, 8, 2, 3], {"a": 1, "b": 2}))
        self.assertIsInstance(found["when"], datetime.datetime)
        result = self.mills.update_one({"k": 5}, {"$set": {"v": 1}}, upsert=True)
        self.assertEqual(self.mills.find_one(result.upserted_id)["k"], 5)
        self.mills.update_one({"_id": 1}, {"$set": {"list.$[x]": 0}}, array_filters=[{"x": {"$gt": 5}}])
        self.assertEqual(self.mills.find_one({"_id": 1})["list"], [1, 0, 0, 2, 3])
        self.mills.update_one({"_id": 1}, [{"$set": {"sum": {"$sum": "$list"}}}])
        self.assertEqual(self.mills.find_one({"_id": 1})["sum"], 6)
        with self.assertRaises(WriteError) as caught:
            self.mills.update_one({"_id": 1}, {"$set": {"_id": 2}})
        self.assertEqual(caught.exception.code, 66)
        before = self.mills.find_one_and_update({"_id": 1}, {"$unset": {"list": 1}})
        self.assertIn("list", before)
        self.assertEqual(self.mills.find_one_and_delete({"_id": 1})["sum"], 6)

    def test_bulk_writes_report_each_failure(self):
        with self.assertRaises(BulkWriteError) as caught:
            self.mills.insert_many([{"_id": n} for n in (1, 2, 1, 3, 2)], ordered=False)
        details = caught.exception.details
        self.assertEqual(details["nInserted"], 3)
        self.assertEqual([e["index"] for e in details["writeErrors"]], [2, 4])

    def test_aggregation(self):
        self.mills.insert_many([{"_id": n, "g": n % 3, "v": n} for n in range(30)])
        self.client.test.names.insert_many([{"_id": g, "name": f"g{g}"} for g in range(3)])
        found = list(self.mills.aggregate([
            {"$match": {"v": {"$gte": 3}}},
            {"$group": {"_id": "$g", "sum": {"$sum": "$v"}, "all": {"$push": "$v"}}},
            {"$lookup": {"from": "names", "localField": "_id", "foreignField": "_id", "as": "n"}},
            {"$project": {"sum": 1, "name": {"$arrayElemAt": ["$n.name", 0]}, "count": {"$size": "$all"}}},
            {"$sort": {"_id": 1}},
        ]))
        self.assertEqual(found, [
            {"_id": g, "sum": sum(v for v in range(3, 30) if v % 3 == g), "name": f"g{g}", "count": 9}
            for g in range(3)])
        self.mills.aggregate([{"$match": {"g": 1}}, {"$out": "copy"}])
        self.assertEqual(self.client.test.copy.count_documents({}), 10)

    def test_capped_collections_can_be_tailed(self):
        capped = self.client.test.create_collection("log", capped=True, size=4096, max=10)
        capped.insert_many([{"n": n} for n in range(25)])
        self.assertEqual([d["n"] for d in capped.find()], list(range(15, 25)))
        cursor = capped.find(cursor_type=pymongo.CursorType.TAILABLE_AWAIT).max_await_time_ms(20000)
        self.assertEqual([next(cursor)["n"] for _ in range(10)], list(range(15, 25)))
        writer = threading.Thread(target=lambda: capped.insert_one({"n": 99}))
        writer.start()
        self.assertEqual(next(cursor)["n"], 99)
        writer.join()

    def test_no_update_is_lost(self):
        self.mills.insert_one({"_id": 0, "n": 0})

        def add():
            for _ in range(50):
                self.mills.update_one({"_id": 0}, {"$inc": {"n": 1}})

        threads = [threading.Thread(target=add) for _ in range(16)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        self.assertEqual(self.mills.find_one()["n"], 800)

    def test_errors_are_mongodbs(self):
        for command, code in [
            ({"nosuchcommand": 1}, 59),
            ({"find": "mills", "filter": {"$foo": 1}}, 2),
            ({"find": "mills", "filter": {"a": {"$foo": 1}}}, 2),
            ({"aggregate": "mills", "pipeline": [{"$foo": 1}], "cursor": {}}, 40324),
            ({"find": "mills", "surprise": 1}, 40415),
        ]:
            with self.assertRaises(OperationFailure) as caught:
                self.client.test.command(command)
            self.assertEqual(caught.exception.code, code, command)

    def test_compression(self):
        for compressor in ("zlib", "snappy", "zstd"):
            with pymongo.MongoClient(self.server.uri, compressors=compressor) as client:
                client.test.z.insert_one({"_id": compressor, "text": "x" * 10000})
                self.assertEqual(len(client.test.z.find_one({"_id": compressor})["text"]), 10000)


class Restart(unittest.TestCase):
    def test_data_and_indexes_survive_and_the_folder_is_locked(self):
        with Server() as server:
            with pymongo.MongoClient(server.uri) as client:
                client.test.a.create_index("x", unique=True)
                client.test.a.insert_many([{"x": n} for n in range(100)])
            with self.assertRaisesRegex(RuntimeError, "(?i)lock|another|in use"):
                Server(dbpath=server.dbpath).start()
            server.stop()
            server.start()
            with pymongo.MongoClient(server.uri) as client:
                self.assertEqual(client.test.a.count_documents({}), 100)
                self.assertTrue(client.test.validate_collection("a")["valid"])
                with self.assertRaises(DuplicateKeyError):
                    client.test.a.insert_one({"x": 5})

    def test_only_loopback_is_served(self):
        with self.assertRaisesRegex(RuntimeError, "(?i)loopback"):
            Server("--bind_ip", "0.0.0.0").start()


if __name__ == "__main__":
    unittest.main()
