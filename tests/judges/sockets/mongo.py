"""Drives the database's server by PyMongo and prints what it answers, a line each: name, tab, value.

    mongo.py PORT
"""

import hashlib
import os
import sys
import threading
from pathlib import Path

PYTHON = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "millrace/python/clients/bin/python"
THREADS = 8
DOCUMENTS = 2000


def say(name, value):
    print(f"{name}\t{value}", flush=True)


def main():
    import pymongo

    client = pymongo.MongoClient("127.0.0.1", int(sys.argv[1]), serverSelectionTimeoutMS=10000)
    say("ping", client.admin.command("ping")["ok"])
    documents = client.judge.documents
    documents.drop()
    failures = []

    def write(thread):
        try:
            own = [{"_id": thread * DOCUMENTS + index, "thread": thread, "text": "x" * (index % 700)}
                   for index in range(DOCUMENTS)]
            documents.insert_many(own[: DOCUMENTS // 2])
            for document in own[DOCUMENTS // 2:DOCUMENTS // 2 + 200]:
                documents.insert_one(document)
            documents.insert_many(own[DOCUMENTS // 2 + 200:], ordered=False)
        except Exception as failure:
            failures.append(repr(failure))

    threads = [threading.Thread(target=write, args=(thread,)) for thread in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    say("failures", failures)
    say("count", documents.count_documents({}))
    documents.create_index("thread")
    digest = hashlib.sha256()
    # Many batches of a cursor.
    for document in documents.find({}, batch_size=100).sort("_id"):
        digest.update(repr(sorted(document.items())).encode())
    say("all", digest.hexdigest())
    groups = documents.aggregate([{"$group": {"_id": "$thread", "count": {"$sum": 1}}}, {"$sort": {"_id": 1}}])
    say("groups", list(groups))
    large = {"_id": "large", "bytes": bytes(range(256)) * 40000}
    documents.insert_one(large)
    say("large", documents.find_one({"_id": "large"}) == large)
    say("updated", documents.update_many({"thread": 3}, {"$set": {"seen": True}}).modified_count)
    say("deleted", documents.delete_many({"thread": 5}).deleted_count)
    try:
        documents.insert_one({"_id": 1})
    except pymongo.errors.DuplicateKeyError as error:
        say("duplicate", error.code)
    for _ in range(20):
        with pymongo.MongoClient("127.0.0.1", int(sys.argv[1])) as other:
            other.admin.command("ping")
    say("left", documents.count_documents({}))


if __name__ == "__main__":
    main()
