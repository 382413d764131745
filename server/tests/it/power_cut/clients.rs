//! Clients that write at the same time, and share the syncs of the log.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;

use bson::{Document, doc};
use millrace_block::{Device, MemoryDevice};
use millrace_engine::Engine as _;
use millrace_power_cut::{PowerCut, Survivors};
use millrace_random::Random;

use super::campaign::KeptOnPanic;
use super::recorded::geometry;
use super::stack;
use crate::history::fixture::Fixture;

const CLIENTS: i32 = 3;
/// Commands of each.
const COMMANDS: i32 = 30;

/// What a client does with its command of this number.
fn command(client: i32, number: i32) -> Document {
    let id = |number: i32| client * 1000 + number;
    match number % 5 {
        2 => {
            doc! {"update": "c", "updates": [{"q": {"_id": id(number - 1)}, "u": {"$set": {"n": number}}}]}
        }
        4 => doc! {"delete": "c", "deletes": [{"q": {"_id": id(number - 4)}, "limit": 1}]},
        _ => doc! {"insert": "c", "documents": [
            {"_id": id(number), "client": client, "n": number, "filling": "x".repeat(300)},
        ]},
    }
}

/// The values of `n` by `_id` after so many commands of a client.
fn state(client: i32, commands: i32) -> BTreeMap<i32, i32> {
    let id = |number: i32| client * 1000 + number;
    let mut state = BTreeMap::new();
    for number in 0..commands {
        match number % 5 {
            2 => drop(state.insert(id(number - 1), number)),
            4 => drop(state.remove(&id(number - 4))),
            _ => drop(state.insert(id(number), number)),
        }
    }
    state
}

/// What clients did on a device that records.
pub(crate) struct Clients {
    seed: u64,
    device: Arc<PowerCut>,
    /// For each client, the number of events when each of its commands was acknowledged.
    acknowledged: Vec<Vec<usize>>,
}

impl Clients {
    /// Has all clients do their commands, each of which is acknowledged when it is durable.
    pub(crate) fn new(seed: u64) -> Self {
        let device = PowerCut::new(geometry(seed)).expect("a legal geometry");
        stack::format(&(Arc::clone(&device) as _));
        let fixture = stack::open(Arc::clone(&device) as _, "recording");
        fixture.run(&doc! {"createIndexes": "c", "indexes": [
            {"key": {"client": 1, "n": 1}, "name": "n", "unique": true},
        ]});
        fixture.engine.sync().expect("nothing fails");
        device.settle();
        let acknowledged = thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS)
                .map(|client| {
                    let (fixture, device) = (&fixture, &device);
                    scope.spawn(move || {
                        let acknowledge = |number| {
                            fixture.run(&command(client, number));
                            fixture.engine.sync().expect("nothing fails");
                            device.events()
                        };
                        (0..COMMANDS).map(acknowledge).collect()
                    })
                })
                .collect();
            let ended = clients.into_iter().map(thread::ScopedJoinHandle::join);
            ended.map(|client| client.expect("it ends")).collect()
        });
        Self {
            seed,
            device,
            acknowledged,
        }
    }

    /// Cuts the power at so many points at most, or nearly so; how many images were made.
    pub(crate) fn cut(&self, points_max: usize) -> usize {
        let mut random = Random::new(self.seed);
        let mut cursor = self.device.cursor();
        let stride = cursor.events().div_ceil(points_max) as u64;
        let mut images = 0;
        while cursor.advance() {
            if random.below(stride) != 0 {
                continue;
            }
            let point = cursor.point();
            for survivors in Survivors::ALL {
                let seed = random.number();
                let case = format!(
                    "seed {}, point {point} of {}, {survivors:?} by {seed}",
                    self.seed,
                    cursor.events()
                );
                let image = cursor.image(survivors, seed);
                let kept = KeptOnPanic(&image);
                let disk = MemoryDevice::on(image.clone(), cursor.geometry().clone());
                let disk: Arc<dyn Device> = Arc::new(disk.expect("an image is of this size"));
                stack::check_volume(&disk, &case);
                let fixture = stack::open(disk, &case);
                fixture.check(&case);
                self.check(&fixture, point, &case);
                drop(kept);
                images += 1;
            }
        }
        images
    }

    /// Each client finds what it was told of, or that and its next command.
    fn check(&self, fixture: &Fixture, point: usize, case: &str) {
        for (client, acknowledged) in (0..CLIENTS).zip(&self.acknowledged) {
            let find = doc! {"find": "c", "filter": {"client": client}, "batchSize": 1_000_000};
            let number = |document: &Document, field| {
                let number = document.get_i32(field);
                number.unwrap_or_else(|error| panic!("{case}: {document}: {error}"))
            };
            let found: BTreeMap<i32, i32> = fixture
                .all(&find)
                .iter()
                .map(|document| (number(document, "_id"), number(document, "n")))
                .collect();
            let told = acknowledged.partition_point(|events| *events <= point);
            let told = i32::try_from(told).expect("few commands");
            let next = (told + 1).min(COMMANDS);
            assert!(
                found == state(client, told) || found == state(client, next),
                "{case}: client {client} was told of {told} commands, which make {:?}: {found:?}",
                state(client, told)
            );
        }
    }
}
