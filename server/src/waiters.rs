//! The requests that wait for data, and the events that wake them.
//!
//! # No lost wake-up
//! A request notes [`Waiters::endings`] and then checks for data. If there is none it takes a ticket and
//! checks once more: whether its collection has got documents since, and whether the number of endings
//! has changed. A thread that adds data or ends something does so first and reads the tickets after that.
//! All of it is `SeqCst`, so at least one of the two sees the other.
//!
//! Insertions and the ends of collections come from the database as commits: the waiters are one of their
//! observers. Cursors, sessions and operations end without a commit, and the server says so.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bson::Document;
use millrace_collection::committer::{CommitObserver, Detail, LogicalChange};
use millrace_collection::{Collection, RecordKind};
use millrace_engine::CommitSeq;

use crate::logical_sessions::SessionId;
use crate::network::{ConnectionId, Notifier, Ticket};

/// A request that waits for data, with what it waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiter {
    /// The collection (`database.collection`) whose insertions it waits for.
    pub namespace: String,
    /// The logical session of the request; `None` without one.
    pub session: Option<SessionId>,
    /// The connection that the request came by.
    pub connection: ConnectionId,
}

/// All requests that wait for data.
#[derive(Debug)]
pub struct Waiters {
    notifier: Arc<Notifier>,
    /// By namespace, so that an insertion finds those of its collection at once.
    waiting: Mutex<HashMap<String, Vec<(Ticket, Waiter)>>>,
    /// How many tickets there are. Written under the lock; insertions read it without.
    count: AtomicUsize,
    /// The number of endings since the start: collections, cursors, sessions, operations.
    endings: AtomicU64,
}

impl Waiters {
    /// A set without waiters, whose tickets `notifier` issues.
    #[must_use]
    pub fn new(notifier: Arc<Notifier>) -> Self {
        Self {
            notifier,
            waiting: Mutex::default(),
            count: AtomicUsize::new(0),
            endings: AtomicU64::new(0),
        }
    }

    /// The notifier that issues the tickets of the waiters.
    #[must_use]
    pub const fn notifier(&self) -> &Arc<Notifier> {
        &self.notifier
    }

    /// How many endings there have been. See the [module's page](self).
    #[must_use]
    pub fn endings(&self) -> u64 {
        self.endings.load(Ordering::SeqCst)
    }

    /// A ticket that the next insertion into the waiter's collection notifies, or an ending.
    pub fn register(&self, waiter: Waiter) -> Ticket {
        let ticket = self.notifier.ticket();
        let namespace = waiter.namespace.clone();
        let mut waiting = self.lock();
        waiting.entry(namespace).or_default().push((ticket, waiter));
        self.count.fetch_add(1, Ordering::SeqCst);
        ticket
    }

    /// Takes back a ticket, notified or not.
    pub fn forget(&self, namespace: &str, ticket: Ticket) {
        self.notifier.cancel(ticket);
        let mut waiting = self.lock();
        let Some(of_namespace) = waiting.get_mut(namespace) else {
            return;
        };
        let before = of_namespace.len();
        of_namespace.retain(|(other, _)| *other != ticket);
        self.count
            .fetch_sub(before - of_namespace.len(), Ordering::SeqCst);
        if of_namespace.is_empty() {
            waiting.remove(namespace);
        }
    }

    /// Something was inserted into the collection.
    pub fn inserted(&self, namespace: &str) {
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let woken = {
            let mut waiting = self.lock();
            let woken = waiting.remove(namespace).unwrap_or_default();
            self.count.fetch_sub(woken.len(), Ordering::SeqCst);
            woken
        };
        for (ticket, _) in woken {
            self.notifier.notify(ticket);
        }
    }

    /// Wakes the requests that an ending `concerns`: the end of a collection, a cursor, a session or an
    /// operation. A request that is woken without need checks again and waits on.
    pub fn ended(&self, concerns: impl Fn(&Waiter) -> bool) {
        self.endings.fetch_add(1, Ordering::SeqCst);
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut woken = Vec::new();
        {
            let mut waiting = self.lock();
            waiting.retain(|_, of_namespace| {
                of_namespace.retain(|(ticket, waiter)| {
                    let concerned = concerns(waiter);
                    if concerned {
                        woken.push(*ticket);
                    }
                    !concerned
                });
                !of_namespace.is_empty()
            });
            self.count.fetch_sub(woken.len(), Ordering::SeqCst);
        }
        for ticket in woken {
            self.notifier.notify(ticket);
        }
    }

    /// Collections were changed by `command`, which a commit has made visible in `database`.
    fn changed(&self, database: &str, command: &Document) {
        if let Ok(collection) = command.get_str("drop") {
            let namespace = format!("{database}.{collection}");
            self.ended(|waiter| waiter.namespace == namespace);
        } else if let Ok(source) = command.get_str("renameCollection") {
            let target = command.get_str("to").unwrap_or_default();
            self.ended(|waiter| [source, target].contains(&waiter.namespace.as_str()));
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Vec<(Ticket, Waiter)>>> {
        // Nothing that is done under the lock can panic halfway.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CommitObserver for Waiters {
    fn detail(&self, collection: &Collection) -> Option<Detail> {
        // Only cursors on capped collections wait.
        (collection.kind == RecordKind::Sequenced).then_some(Detail::Documents)
    }

    fn committed(&self, _: CommitSeq, changes: &[LogicalChange<'_>]) {
        let mut last = None;
        for change in changes {
            match change {
                // One waking serves all insertions of a commit into one collection.
                LogicalChange::Insert { namespace, .. } if last != Some(*namespace) => {
                    self.inserted(namespace.as_str());
                    last = Some(*namespace);
                }
                LogicalChange::Command {
                    database, document, ..
                } => self.changed(database, document),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bson::{Uuid, doc, rawdoc};
    use millrace_collection::Namespace;

    use super::*;

    fn waiter(namespace: &str, connection: u64) -> Waiter {
        Waiter {
            namespace: namespace.to_owned(),
            session: SessionId::from_bytes(&[1; 16]),
            connection: ConnectionId(connection),
        }
    }

    #[test]
    fn commits_wake_the_waiters_they_concern() {
        let waiters = Waiters::new(Notifier::new());
        let register = || {
            for (connection, namespace) in (1..).zip(["a.b", "a.c", "b.c"]) {
                waiters.register(waiter(namespace, connection));
            }
        };
        let left = || {
            let mut waiting = waiters.lock();
            let mut names: Vec<_> = waiting.drain().map(|(namespace, _)| namespace).collect();
            waiters.count.store(0, Ordering::SeqCst);
            names.sort();
            names
        };
        let [first, second] = ["a.b", "a.c"].map(|name| Namespace::parse(name).expect("a name"));
        let (uuid, document) = (Uuid::from_bytes([0; 16]), rawdoc! {"_id": 1});
        let insert = |namespace| LogicalChange::Insert {
            namespace,
            uuid,
            document: &document,
        };
        let command = |document| LogicalChange::Command {
            database: "a",
            uuid,
            document,
        };
        let (drop, create) = (doc! {"drop": "c"}, doc! {"create": "c"});
        let rename = doc! {"renameCollection": "a.b", "to": "b.c"};
        let cases: [(&[LogicalChange<'_>], &[&str]); 6] = [
            (&[], &["a.b", "a.c", "b.c"]),
            (&[insert(&first), insert(&first)], &["a.c", "b.c"]),
            (&[insert(&first), insert(&second)], &["b.c"]),
            (&[command(&create)], &["a.b", "a.c", "b.c"]),
            (&[command(&drop)], &["a.b", "b.c"]),
            (&[command(&rename)], &["a.c"]),
        ];
        for (number, (changes, expected)) in cases.into_iter().enumerate() {
            register();
            waiters.committed(CommitSeq::ZERO, changes);
            assert_eq!(left(), expected, "case {number}");
        }
        assert_eq!(waiters.endings(), 2);
    }

    #[test]
    fn tickets_are_gone_once_woken_or_forgotten() {
        let waiters = Waiters::new(Notifier::new());
        let first = waiters.register(waiter("a.b", 1));
        for (namespace, connection) in [("a.b", 2), ("a.c", 3), ("a.c", 4), ("a.d", 5)] {
            waiters.register(waiter(namespace, connection));
        }
        let count = || waiters.count.load(Ordering::SeqCst);
        waiters.forget("a.b", first);
        assert_eq!(count(), 4);
        waiters.inserted("a.b");
        assert_eq!(count(), 3);
        waiters.forget("a.b", first);
        assert_eq!(waiters.endings(), 0, "an insertion ends nothing");
        waiters.ended(|waiter| waiter.connection == ConnectionId(3));
        assert_eq!((count(), waiters.endings()), (2, 1));
        waiters.ended(|waiter| waiter.namespace == "a.d");
        assert_eq!(waiters.lock().keys().collect::<Vec<_>>(), ["a.c"]);
        waiters.ended(|waiter| waiter.session.is_some());
        assert_eq!((count(), waiters.endings()), (0, 3));
        assert!(waiters.lock().is_empty());
        waiters.ended(|_| true);
        assert_eq!(waiters.endings(), 4, "counted though nobody waits");
    }
}
