//! What the collections of a simulation must hold: plain maps, and their history since the last loss of power.

use std::collections::BTreeMap;

/// The documents of the collection that clients change, by `_id`.
pub(crate) type Contents = BTreeMap<i32, i64>;

/// A place in the history of the model: how many changes came before.
pub(crate) type Moment = usize;

/// A document with an expiry date.
#[derive(Clone, Copy, Debug)]
struct Expiring {
    /// The wall clock at which it expires, in milliseconds.
    expires_ms: i64,
    is_acknowledged: bool,
    was_swept: bool,
}

/// The model. What a crash may leave is the history up to some change, not earlier than what was acknowledged.
#[derive(Debug)]
pub(crate) struct Model {
    /// The contents after each change; the first entry is what the last recovery found.
    history: Vec<Contents>,
    /// The last change that was acknowledged as durable.
    acknowledged: Moment,
    /// Documents of the collection that lets documents expire.
    expiring: BTreeMap<i32, Expiring>,
    /// How many documents the capped collection has (`_id` from 0), and how many of them were acknowledged.
    log_len: i32,
    log_acknowledged: i32,
}

impl Model {
    pub(crate) fn new() -> Self {
        Self {
            history: vec![Contents::new()],
            acknowledged: 0,
            expiring: BTreeMap::new(),
            log_len: 0,
            log_acknowledged: 0,
        }
    }

    /// What reads must see now.
    pub(crate) fn contents(&self) -> &Contents {
        self.history.last().expect("it has a beginning")
    }

    /// Goes on to other contents, atomically.
    pub(crate) fn change(&mut self, contents: Contents) {
        self.history.push(contents);
    }

    /// The present moment.
    pub(crate) fn moment(&self) -> Moment {
        self.history.len() - 1
    }

    /// Everything up to `moment` was acknowledged as durable.
    pub(crate) fn acknowledge(&mut self, moment: Moment) {
        self.acknowledged = self.acknowledged.max(moment);
    }

    /// Compares with what a recovery found, and goes on from there.
    pub(crate) fn recover(&mut self, found: Contents) -> Result<(), String> {
        let possible = &self.history[self.acknowledged..];
        if !possible.contains(&found) {
            return Err(format!(
                "after the loss of power there is {found:?}; acknowledged was {:?}, and later came {:?}",
                possible[0],
                &possible[1..]
            ));
        }
        self.history = vec![found];
        self.acknowledged = 0;
        Ok(())
    }

    /// Everything so far is durable.
    pub(crate) fn acknowledge_everything(&mut self) {
        self.acknowledged = self.moment();
        for document in self.expiring.values_mut() {
            document.is_acknowledged = true;
        }
        self.log_acknowledged = self.log_len;
    }

    /// Adds a document that expires.
    pub(crate) fn add_expiring(&mut self, id: i32, expires_ms: i64) {
        let document = Expiring {
            expires_ms,
            is_acknowledged: false,
            was_swept: false,
        };
        self.expiring.insert(id, document);
    }

    pub(crate) fn acknowledge_expiring(&mut self, id: i32) {
        if let Some(document) = self.expiring.get_mut(&id) {
            document.is_acknowledged = true;
        }
    }

    /// How many more documents are past their time at the wall clock `now_ms` and not among those found. They may come
    /// back: a loss of power may undo their deletion.
    pub(crate) fn expired(&mut self, found: &[i32], now_ms: i64) -> u64 {
        let mut count = 0;
        for (id, document) in &mut self.expiring {
            let is_gone = document.expires_ms < now_ms && !found.contains(id);
            count += u64::from(is_gone && !document.was_swept);
            document.was_swept |= is_gone;
        }
        count
    }

    /// Compares with the documents that have not expired at the wall clock `now_ms`; those that have may be there until
    /// they are swept, and what is not acknowledged may be gone if power was lost.
    pub(crate) fn check_expiring(
        &mut self,
        found: &[i32],
        now_ms: i64,
        is_swept: bool,
        is_recovered: bool,
    ) -> Result<(), String> {
        for id in found {
            match self.expiring.get(id) {
                None => return Err(format!("the document {id} was never inserted")),
                Some(document) if is_swept && document.expires_ms < now_ms => {
                    return Err(format!("the document {id} has expired and is there"));
                }
                Some(_) => {}
            }
        }
        for (id, document) in &self.expiring {
            let may_be_gone = is_recovered && !document.is_acknowledged;
            if document.expires_ms > now_ms && !found.contains(id) && !may_be_gone {
                return Err(format!("the document {id} has not expired and is gone"));
            }
        }
        if is_recovered {
            self.expiring.retain(|id, _| found.contains(id));
        }
        Ok(())
    }

    /// Appends a document to the capped collection and returns how many there are then.
    pub(crate) fn append_to_log(&mut self) -> i32 {
        self.log_len += 1;
        self.log_len
    }

    pub(crate) fn log_len(&self) -> i32 {
        self.log_len
    }

    pub(crate) fn acknowledge_log(&mut self, len: i32) {
        self.log_acknowledged = self.log_acknowledged.max(len);
    }

    /// Compares with the `_id`s of the capped collection that a recovery found, and goes on from there.
    pub(crate) fn recover_log(&mut self, found: &[i32]) -> Result<(), String> {
        let len = i32::try_from(found.len()).expect("few documents");
        if !found.iter().copied().eq(0..len) || len < self.log_acknowledged || len > self.log_len {
            return Err(format!(
                "after the loss of power the capped collection has {found:?}; {} were acknowledged of {}",
                self.log_acknowledged, self.log_len
            ));
        }
        self.log_len = len;
        self.log_acknowledged = len;
        Ok(())
    }
}
