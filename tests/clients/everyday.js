// A script of everyday work for mongosh; an assertion that fails ends it with an error.
const assert = require("assert");
const mills = db.getSiblingDB("everyday").mills;
mills.drop();

assert.equal(mills.insertMany([
  { name: "Alder", wheel: "breastshot", flow: 1.2 },
  { name: "Birch", wheel: "overshot", flow: 0.4 },
  { name: "Cedar", wheel: "breastshot", flow: 2.0 },
]).acknowledged, true);
assert.equal(mills.countDocuments(), 3);
assert.deepEqual(mills.find({ flow: { $gt: 1 } }).sort({ flow: -1 }).toArray().map((m) => m.name), ["Cedar", "Alder"]);
assert.equal(mills.createIndex({ wheel: 1, flow: -1 }), "wheel_1_flow_-1");
assert.match(JSON.stringify(mills.find({ wheel: "overshot" }).explain()), /IXSCAN/);
assert.equal(mills.updateMany({ wheel: "breastshot" }, { $set: { kept: true } }).modifiedCount, 2);
assert.equal(mills.findOneAndUpdate({ name: "Birch" }, { $inc: { flow: 1 } }, { returnDocument: "after" }).flow, 1.4);
const grouped = mills.aggregate([{ $group: { _id: "$wheel", n: { $sum: 1 } } }, { $sort: { _id: 1 } }]).toArray();
assert.deepEqual(grouped, [{ _id: "breastshot", n: 2 }, { _id: "overshot", n: 1 }]);
assert.equal(mills.deleteOne({ name: "Alder" }).deletedCount, 1);
let refused;
try { mills.insertOne({ _id: mills.findOne()._id }); } catch (error) { refused = error; }
assert.equal(refused.code, 11000);
assert.ok(db.getSiblingDB("everyday").getCollectionNames().includes("mills"));
assert.ok(db.adminCommand({ listDatabases: 1 }).databases.some((d) => d.name === "everyday"));
assert.equal(mills.validate().valid, true);
assert.ok(db.serverStatus().connections.current >= 1);
assert.equal(db.version().split(".")[0], "8");
assert.ok(mills.stats().count === 2);
assert.equal(db.getSiblingDB("everyday").dropDatabase().ok, 1);
print("everyday work done");
