//! The bytes of open cursors that are reported to the hooks, after every kind of operation.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bson::{Document, rawdoc};
use millrace_value::operation::Limits;
use proptest::prelude::*;

use super::*;

/// A clock that each look moves on, and ids that differ.
#[derive(Debug, Default)]
struct Ticking {
    looks: AtomicU64,
}

impl Environment for Ticking {
    fn wall_clock_ms(&self) -> i64 {
        0
    }

    fn monotonic(&self) -> Duration {
        Duration::from_secs(self.random())
    }

    fn random(&self) -> u64 {
        self.looks.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// Lets the cursors hold `most`, and remembers what they were last allowed.
#[derive(Debug)]
struct Ledger {
    most: usize,
    told: AtomicUsize,
}

impl DatabaseHooks for Ledger {
    fn current_operations(&self, _: &Document) -> Result<Vec<Document>> {
        Ok(Vec::new())
    }

    fn sessions(&self, _: &Document) -> Result<Vec<Document>> {
        Ok(Vec::new())
    }

    fn address(&self) -> String {
        String::new()
    }

    fn cursors_may_hold(&self, bytes: usize) -> bool {
        let allowed = bytes <= self.most;
        if allowed {
            self.told.store(bytes, Ordering::Relaxed);
        }
        allowed
    }
}

/// The registry and the cursors that are taken out of it.
struct Fixture {
    cursors: Cursors,
    ledger: Arc<Ledger>,
    environment: Arc<Ticking>,
    namespace: Namespace,
    ids: Vec<i64>,
    taken: Vec<(i64, Box<OpenCursor>)>,
}

impl Fixture {
    fn new(most: usize) -> Self {
        let told = AtomicUsize::new(0);
        let ledger = Arc::new(Ledger { most, told });
        Self {
            cursors: Cursors::new(ledger.clone()),
            ledger,
            environment: Arc::default(),
            namespace: Namespace::new("test", "c").expect("a name"),
            ids: Vec::new(),
            taken: Vec::new(),
        }
    }

    fn operation(&self) -> Operation {
        let environment: Arc<dyn Environment> = self.environment.clone();
        Operation::new(
            environment,
            Arc::new(Interrupt::default()),
            Limits::default(),
        )
    }

    fn run(&mut self, step: &Step) {
        match step {
            Step::Register { sizes, lasting } => {
                let mut list = DocumentList::default();
                for &size in sizes {
                    list.push(rawdoc! {"text": "x".repeat(size)});
                }
                let session = lasting.then_some(&b"session"[..]);
                let namespace = self.namespace.clone();
                let mut cursor = OpenCursor::new(namespace, Source::List(list), session);
                cursor.no_timeout = *lasting;
                self.ids
                    .push(self.cursors.register(cursor, &*self.environment));
            }
            Step::Take(which) => {
                let (Some(id), operation) = (self.id(*which), self.operation()) else {
                    return;
                };
                for session in [None, Some(&b"session"[..])] {
                    let taken = self.cursors.take(id, &self.namespace, session, &operation);
                    self.taken.extend(taken.ok().map(|cursor| (id, cursor)));
                }
            }
            Step::GiveBack(count) => {
                let Some((id, mut cursor)) = self.taken.pop() else {
                    return;
                };
                let mut reply = Vec::new();
                let mut writer = DocumentWriter::new(&mut reply);
                writer.open_array("nextBatch");
                cursor
                    .fill(&self.operation(), &mut writer, *count)
                    .expect("a list does not fail");
                self.cursors
                    .give_back(id, cursor, self.environment.monotonic());
            }
            Step::End => {
                if let Some((id, _)) = self.taken.pop() {
                    self.cursors.close(id);
                }
            }
            Step::Kill(which) => {
                if let Some(id) = self.id(*which) {
                    self.cursors.kill(id, &self.namespace);
                }
            }
            Step::EndSession => self.cursors.kill_session(b"session"),
            Step::CloseIdle { after_s } => {
                let after = Duration::from_secs(*after_s);
                self.cursors
                    .close_idle(self.environment.monotonic() + after);
            }
        }
    }

    fn id(&self, which: prop::sample::Index) -> Option<i64> {
        (!self.ids.is_empty()).then(|| *which.get(&self.ids))
    }

    /// What the cursors between batches hold, counted anew.
    fn held(&self) -> usize {
        let entries = self.cursors.entries.lock();
        let cursors = entries
            .by_id
            .values()
            .filter_map(|entry| entry.cursor.as_ref());
        cursors
            .map(|cursor| {
                let Source::List(list) = &cursor.source else {
                    panic!("only lists are registered");
                };
                let documents = list.iter().chain(&cursor.pending);
                CURSOR_BYTES + documents.map(|one| one.as_bytes().len()).sum::<usize>()
            })
            .sum()
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// With documents of these sizes; for ever and in a session, or neither.
    Register {
        sizes: Vec<usize>,
        lasting: bool,
    },
    Take(prop::sample::Index),
    /// After a batch of so many documents.
    GiveBack(u64),
    End,
    Kill(prop::sample::Index),
    EndSession,
    CloseIdle {
        after_s: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let sizes = prop::collection::vec(0..3000_usize, 0..5);
    prop_oneof![
        6 => (sizes, any::<bool>()).prop_map(|(sizes, lasting)| Step::Register { sizes, lasting }),
        4 => any::<prop::sample::Index>().prop_map(Step::Take),
        3 => (0..4_u64).prop_map(Step::GiveBack),
        1 => Just(Step::End),
        1 => any::<prop::sample::Index>().prop_map(Step::Kill),
        1 => Just(Step::EndSession),
        1 => (0..700_u64).prop_map(|after_s| Step::CloseIdle { after_s }),
    ]
}

proptest! {
    #[test]
    fn the_surroundings_know_what_the_cursors_hold(
        most in 0..100_000_usize,
        steps in prop::collection::vec(step(), 0..60),
    ) {
        let mut bed = Fixture::new(most);
        for step in &steps {
            bed.run(step);
            let told = bed.ledger.told.load(Ordering::Relaxed);
            prop_assert_eq!(told, bed.held(), "after {:?}", step);
            prop_assert_eq!(bed.cursors.entries.lock().bytes, told);
        }
    }
}
