//! `$mergeObjects`.

use bson::{Bson, Document};
use millrace_value::{Error, Result, display, size, type_alias};

use crate::accumulator::{Accumulator, Input};

/// `$mergeObjects`: one object with the fields of all, later ones replacing earlier ones.
#[derive(Debug, Default)]
pub(super) struct MergeObjects {
    merged: Document,
    bytes: usize,
}

impl Accumulator for MergeObjects {
    fn add(&mut self, input: Input) -> Result<()> {
        match input.value {
            None | Some(Bson::Null | Bson::Undefined) => Ok(()),
            Some(Bson::Document(document)) => {
                // Replaced fields are counted twice: the bound on memory is never exceeded.
                self.bytes += size::document_bytes(&document);
                self.merged.extend(document);
                Ok(())
            }
            Some(other) => Err(Error::location(
                40400,
                format!(
                    "$mergeObjects requires object inputs, but input {} is of type {}",
                    display::value(&other),
                    type_alias(&other)
                ),
            )),
        }
    }

    fn state(&mut self) -> Bson {
        self.bytes = 0;
        Bson::Document(std::mem::take(&mut self.merged))
    }

    fn merge(&mut self, state: Bson) -> Result<()> {
        self.add(Input {
            value: Some(state),
            key: Vec::new(),
        })
    }

    fn finish(&mut self) -> Result<Option<Bson>> {
        Ok(Some(Bson::Document(std::mem::take(&mut self.merged))))
    }

    fn memory_bytes(&self) -> usize {
        self.bytes
    }
}
