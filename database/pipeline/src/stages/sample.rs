//! `$sample`.

use bson::{Bson, Document, doc};
use millrace_expression::sort::{ExternalSort, Sorted};
use millrace_value::{Error, Number, Operation, Result};

use super::{Run, Stage};
use crate::context::{Context, ParseContext};
use crate::{DocumentStream, Documents};

/// Gives some documents chosen at random, in random order: the first of a sort by random numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    size: i64,
}

impl Run for Sample {
    fn to_document(&self) -> Document {
        doc! {"$sample": {"size": self.size}}
    }

    fn run(
        &self,
        source: Box<dyn DocumentStream>,
        context: &Context,
    ) -> Result<Box<dyn DocumentStream>> {
        Ok(Box::new(SampleStream {
            state: State::Reading(source),
            size: self.size,
            context: context.clone(),
        }))
    }
}

struct SampleStream {
    state: State,
    size: i64,
    context: Context,
}

enum State {
    Reading(Box<dyn DocumentStream>),
    Chosen(Sorted<Document>),
}

impl SampleStream {
    fn choose(
        &self,
        source: &mut dyn DocumentStream,
        operation: &Operation,
    ) -> Result<Sorted<Document>> {
        let mut sort = ExternalSort::new(
            usize::try_from(self.size).ok(),
            self.context.scratch(),
            self.context.allow_disk_use,
        );
        while let Some(document) = source.next(operation)? {
            let key = operation.environment().random().to_be_bytes().to_vec();
            sort.push(operation, key, document)?;
        }
        sort.finish(operation)
    }
}

impl DocumentStream for SampleStream {
    fn next(&mut self, operation: &Operation) -> Result<Option<Document>> {
        loop {
            match &mut self.state {
                State::Chosen(chosen) => return chosen.next(operation),
                State::Reading(source) => {
                    let mut source = std::mem::replace(source, Box::new(Documents::empty()));
                    self.state = State::Chosen(self.choose(source.as_mut(), operation)?);
                }
            }
        }
    }

    fn memory_bytes(&self) -> usize {
        match &self.state {
            State::Reading(source) => source.memory_bytes(),
            State::Chosen(chosen) => chosen.memory_bytes(),
        }
    }
}

pub(super) fn parse(_: &str, argument: &Bson, _: &ParseContext) -> Result<Vec<Stage>> {
    let Bson::Document(options) = argument else {
        return Err(Error::location(
            28745,
            "the $sample stage specification must be an object",
        ));
    };
    let mut size = None;
    for (option, value) in options {
        if option != "size" {
            return Err(Error::location(
                28748,
                format!("unrecognized option to $sample: {option}"),
            ));
        }
        let number = Number::from_bson(value)
            .ok_or_else(|| Error::location(28746, "size argument to $sample must be a number"))?;
        size = Some(truncated(number));
    }
    let size = size.ok_or_else(|| Error::location(28749, "$sample stage must specify a size"))?;
    if size <= 0 {
        return Err(Error::location(
            28747,
            "size argument to $sample must be a positive integer",
        ));
    }
    Ok(vec![Stage::Sample(Sample { size })])
}

/// The number without its fraction; too large ones become the largest.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the cast saturates, which is what is wanted"
)]
fn truncated(number: Number) -> i64 {
    number
        .as_i64_exact()
        .unwrap_or_else(|| number.as_f64() as i64)
}
