//! `$first`, `$last`, `$firstN`, `$lastN`.

use std::collections::VecDeque;

use bson::Bson;
use millrace_value::{Collation, Result, size};

use crate::Scope;
use crate::accumulator::{Accumulator, Input, Parsed, n_of, state_array};

/// `$first`: the value of the first document, even if missing.
#[derive(Debug, Default)]
pub(super) struct First(Edge);

/// `$last`: the value of the last document, even if missing.
#[derive(Debug, Default)]
pub(super) struct Last(Edge);

/// One value, and whether any document has been seen.
#[derive(Debug, Default)]
struct Edge {
    seen: bool,
    value: Option<Bson>,
    bytes: usize,
}

impl Edge {
    fn set(&mut self, value: Option<Bson>) {
        self.bytes = value.as_ref().map_or(0, size::value_bytes);
        self.value = value;
        self.seen = true;
    }

    /// An array: empty if nothing was seen, of nothing but the value otherwise. A missing value becomes
    /// null, as it does in the result.
    fn state(&mut self) -> Bson {
        self.bytes = 0;
        let value = self.value.take().unwrap_or(Bson::Null);
        Bson::Array(if self.seen { vec![value] } else { Vec::new() })
    }
}

impl Accumulator for First {
    fn add(&mut self, input: Input) -> Result<()> {
        if !self.0.seen {
            self.0.set(input.value);
        }
        Ok(())
    }

    fn state(&mut self) -> Bson {
        self.0.state()
    }

    fn merge(&mut self, state: Bson) -> Result<()> {
        match state_array(state)?.pop() {
            Some(value) => self.add(Input {
                value: Some(value),
                key: Vec::new(),
            }),
            None => Ok(()),
        }
    }

    fn finish(&mut self) -> Result<Option<Bson>> {
        Ok(self.0.value.take())
    }

    fn memory_bytes(&self) -> usize {
        self.0.bytes
    }
}

impl Accumulator for Last {
    fn add(&mut self, input: Input) -> Result<()> {
        self.0.set(input.value);
        Ok(())
    }

    fn state(&mut self) -> Bson {
        self.0.state()
    }

    fn merge(&mut self, state: Bson) -> Result<()> {
        if let Some(value) = state_array(state)?.pop() {
            self.0.set(Some(value));
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<Option<Bson>> {
        Ok(self.0.value.take())
    }

    fn memory_bytes(&self) -> usize {
        self.0.bytes
    }
}

/// The first or the last `n` values; missing ones count as null.
#[derive(Debug)]
struct Several<const LAST: bool> {
    n: usize,
    values: VecDeque<Bson>,
    bytes: usize,
}

impl<const LAST: bool> Several<LAST> {
    fn boxed(n: usize, _: Collation) -> Box<dyn Accumulator> {
        Box::new(Self {
            n,
            values: VecDeque::new(),
            bytes: 0,
        })
    }

    fn push(&mut self, value: Bson) {
        if self.values.len() == self.n {
            if !LAST {
                return;
            }
            if let Some(oldest) = self.values.pop_front() {
                self.bytes -= size::value_bytes(&oldest);
            }
        }
        self.bytes += size::value_bytes(&value);
        self.values.push_back(value);
    }
}

impl<const LAST: bool> Accumulator for Several<LAST> {
    fn add(&mut self, input: Input) -> Result<()> {
        self.push(input.value.unwrap_or(Bson::Null));
        Ok(())
    }

    fn state(&mut self) -> Bson {
        self.bytes = 0;
        Bson::Array(std::mem::take(&mut self.values).into())
    }

    fn merge(&mut self, state: Bson) -> Result<()> {
        state_array(state)?
            .into_iter()
            .for_each(|value| self.push(value));
        Ok(())
    }

    fn finish(&mut self) -> Result<Option<Bson>> {
        Ok(Some(self.state()))
    }

    fn memory_bytes(&self) -> usize {
        self.bytes
    }
}

/// `$firstN`
pub(super) fn parse_first_n(name: &'static str, argument: &Bson, scope: &Scope) -> Result<Parsed> {
    n_of(name, argument, scope, Several::<false>::boxed)
}

/// `$lastN`
pub(super) fn parse_last_n(name: &'static str, argument: &Bson, scope: &Scope) -> Result<Parsed> {
    n_of(name, argument, scope, Several::<true>::boxed)
}
