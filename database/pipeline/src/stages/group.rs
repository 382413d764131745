//! `$group`.

use std::collections::HashMap;

use bson::{Bson, Document, RawDocumentBuf, doc};
use millrace_expression::accumulator::{Accumulation, Accumulator};
use millrace_expression::spill::{Entry, Merge, Spill};
use millrace_expression::{EvaluationContext, Expression};
use millrace_value::stage_memory::StageMemory;
use millrace_value::{Error, ErrorCode, Operation, Result, size};

use super::{Run, Stage};
use crate::DocumentStream;
use crate::context::{Context, ParseContext};

/// Gives one document for every different value of an expression, with accumulated fields.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    specification: Document,
    id: Expression,
    fields: Vec<(String, Accumulation)>,
}

impl Group {
    /// What the group is made by.
    pub(crate) const fn id(&self) -> &Expression {
        &self.id
    }

    /// The accumulated fields.
    pub(crate) fn fields(&self) -> &[(String, Accumulation)] {
        &self.fields
    }
}

impl Run for Group {
    fn to_document(&self) -> Document {
        doc! {"$group": self.specification.clone()}
    }

    fn run(
        &self,
        source: Box<dyn DocumentStream>,
        context: &Context,
    ) -> Result<Box<dyn DocumentStream>> {
        Ok(Box::new(GroupStream {
            source: Some(source),
            table: Table::default(),
            memory: StageMemory::default(),
            spill: None,
            output: Output::None,
            group: self.clone(),
            context: context.clone(),
        }))
    }
}

/// One group while documents come in.
struct Bucket {
    id: Bson,
    accumulators: Vec<Box<dyn Accumulator>>,
}

impl Bucket {
    fn memory_bytes(&self) -> usize {
        self.accumulators
            .iter()
            .map(|accumulator| accumulator.memory_bytes())
            .sum()
    }
}

/// The groups in memory, in the order in which they were first seen.
#[derive(Default)]
struct Table {
    index: HashMap<Vec<u8>, usize>,
    buckets: Vec<Bucket>,
    bytes: usize,
}

struct GroupStream {
    /// None once all documents are read.
    source: Option<Box<dyn DocumentStream>>,
    table: Table,
    memory: StageMemory,
    spill: Option<Spill>,
    output: Output,
    group: Group,
    context: Context,
}

enum Output {
    None,
    Memory(std::vec::IntoIter<Bucket>),
    Merged(Merge),
}

impl GroupStream {
    fn read(&mut self, source: &mut dyn DocumentStream, operation: &Operation) -> Result<()> {
        while let Some(document) = source.next(operation)? {
            operation.check()?;
            self.add(&document, operation)?;
            if !self.memory.allows(operation, self.table.bytes) {
                self.spill_table(operation)?;
            }
        }
        if self.spill.is_some() && !self.table.buckets.is_empty() {
            self.spill_table(operation)?;
        }
        let buckets = std::mem::take(&mut self.table.buckets);
        self.table.index = HashMap::new();
        self.output = match self.spill.take() {
            Some(spill) => Output::Merged(spill.merge()?),
            None => Output::Memory(buckets.into_iter()),
        };
        Ok(())
    }

    fn add(&mut self, document: &Document, operation: &Operation) -> Result<()> {
        let eval = self.context.evaluation(operation);
        let id = self
            .group
            .id
            .evaluate(document, &eval)?
            .unwrap_or(Bson::Null);
        let key = self.context.collation.equality_key(&id);
        let position = match self.table.index.get(&key) {
            Some(position) => *position,
            None => {
                let bucket = self.group.start(id, &eval)?;
                // The key is held by the index, the id by the bucket.
                self.table.bytes += 2 * key.len()
                    + size::value_bytes(&bucket.id)
                    + self.group.fields.len() * ACCUMULATOR_BYTES;
                self.table.index.insert(key, self.table.buckets.len());
                self.table.buckets.push(bucket);
                self.table.buckets.len() - 1
            }
        };
        let bucket = &mut self.table.buckets[position];
        for ((_, accumulation), accumulator) in
            self.group.fields.iter().zip(&mut bucket.accumulators)
        {
            let before = accumulator.memory_bytes();
            accumulator.add(accumulation.input(document, &eval)?)?;
            self.table.bytes =
                (self.table.bytes + accumulator.memory_bytes()).saturating_sub(before);
        }
        Ok(())
    }

    /// Writes the groups in memory to scratch space, sorted by their keys.
    fn spill_table(&mut self, operation: &Operation) -> Result<()> {
        if !self.context.allow_disk_use {
            return Err(Error::new(
                ErrorCode::QueryExceededMemoryLimitNoDiskUseAllowed,
                "Exceeded memory limit for $group, but didn't allow external sort. Pass \
                 allowDiskUse:true to opt in.",
            ));
        }
        let Table {
            index, mut buckets, ..
        } = std::mem::take(&mut self.table);
        let mut keys: Vec<(Vec<u8>, usize)> = index.into_iter().collect();
        keys.sort_unstable();
        let spill = match &mut self.spill {
            Some(spill) => spill,
            none => none.insert(Spill::new(self.context.host.scratch()?)),
        };
        let mut run = spill.start_run();
        for (key, position) in keys {
            let bucket = &mut buckets[position];
            let states: Vec<Bson> = bucket
                .accumulators
                .iter_mut()
                .map(|accumulator| accumulator.state())
                .collect();
            let id = std::mem::replace(&mut bucket.id, Bson::Null);
            run.append(
                operation,
                &key,
                &doc! {"id": id, "states": states}.to_vec()?,
            )?;
        }
        self.memory.release();
        Ok(())
    }

    fn next_bucket(&mut self, operation: &Operation) -> Result<Option<Bucket>> {
        let merge = match &mut self.output {
            Output::None => return Ok(None),
            Output::Memory(buckets) => return Ok(buckets.next()),
            Output::Merged(merge) => merge,
        };
        let Some(Entry { key, payload }) = merge.next(operation)? else {
            return Ok(None);
        };
        let eval = self.context.evaluation(operation);
        let (id, states) = decode_spilled(payload)?;
        let mut bucket = self.group.start(id, &eval)?;
        self.group.merge(&mut bucket, states, operation)?;
        while merge.peek_key() == Some(key.as_slice()) {
            let Some(entry) = merge.next(operation)? else {
                break;
            };
            let (_, states) = decode_spilled(entry.payload)?;
            self.group.merge(&mut bucket, states, operation)?;
        }
        Ok(Some(bucket))
    }
}

/// About how much memory an accumulator takes by itself.
const ACCUMULATOR_BYTES: usize = 96;

impl Group {
    fn start(&self, id: Bson, eval: &EvaluationContext<'_>) -> Result<Bucket> {
        let accumulators = self
            .fields
            .iter()
            .map(|(_, accumulation)| accumulation.start(&id, eval))
            .collect::<Result<_>>()?;
        Ok(Bucket { id, accumulators })
    }

    fn merge(&self, bucket: &mut Bucket, states: Vec<Bson>, operation: &Operation) -> Result<()> {
        for (accumulator, state) in bucket.accumulators.iter_mut().zip(states) {
            accumulator.merge(state)?;
        }
        let (bytes, limit) = (bucket.memory_bytes(), operation.limits().stage_memory_bytes);
        if bytes <= limit {
            return Ok(());
        }
        let largest = bucket
            .accumulators
            .iter()
            .zip(&self.fields)
            .max_by_key(|(accumulator, _)| accumulator.memory_bytes())
            .map_or("$group", |(_, (_, accumulation))| accumulation.name());
        Err(Error::new(
            ErrorCode::ExceededMemoryLimit,
            format!(
                "{largest} used too much memory and cannot spill to disk. Used: {bytes} bytes. \
                 Memory limit: {limit} bytes"
            ),
        ))
    }

    fn finish(&self, mut bucket: Bucket) -> Result<Document> {
        let mut document = doc! {"_id": bucket.id};
        for ((name, _), accumulator) in self.fields.iter().zip(&mut bucket.accumulators) {
            document.insert(name.clone(), accumulator.finish()?.unwrap_or(Bson::Null));
        }
        Ok(document)
    }
}

impl DocumentStream for GroupStream {
    fn next(&mut self, operation: &Operation) -> Result<Option<Document>> {
        operation.check()?;
        if let Some(mut source) = self.source.take() {
            self.read(source.as_mut(), operation)?;
        }
        match self.next_bucket(operation)? {
            Some(bucket) => self.group.finish(bucket).map(Some),
            None => Ok(None),
        }
    }

    fn memory_bytes(&self) -> usize {
        let output = match &self.output {
            Output::Merged(merge) => merge.memory_bytes(),
            Output::None | Output::Memory(_) => 0,
        };
        self.source
            .as_ref()
            .map_or(0, |source| source.memory_bytes())
            + self.table.bytes
            + output
    }
}

fn decode_spilled(payload: Vec<u8>) -> Result<(Bson, Vec<Bson>)> {
    let mut document = Document::try_from(RawDocumentBuf::from_bytes(payload)?)?;
    match (document.remove("id"), document.remove("states")) {
        (Some(id), Some(Bson::Array(states))) => Ok((id, states)),
        _ => Err(Error::new(
            ErrorCode::InternalError,
            "scratch space does not hold the groups that were written to it",
        )),
    }
}

pub(super) fn parse(_: &str, argument: &Bson, context: &ParseContext) -> Result<Vec<Stage>> {
    let Bson::Document(specification) = argument else {
        return Err(Error::location(
            15947,
            "a group's fields must be specified in an object",
        ));
    };
    let mut id = None;
    let mut fields = Vec::new();
    for (name, value) in specification {
        if name == "_id" {
            id = Some(Expression::parse(value, &context.scope)?);
        } else {
            fields.push((name.clone(), parse_field(name, value, context)?));
        }
    }
    let id =
        id.ok_or_else(|| Error::location(15955, "a group specification must include an _id"))?;
    Ok(vec![Stage::Group(Group {
        specification: specification.clone(),
        id,
        fields,
    })])
}

/// Parses one accumulated field: `name: {$operator: argument}`.
pub(super) fn parse_field(
    name: &str,
    value: &Bson,
    context: &ParseContext,
) -> Result<Accumulation> {
    if name.contains('.') {
        return Err(Error::location(
            40235,
            format!("The field name '{name}' cannot contain '.'"),
        ));
    }
    if name.starts_with('$') {
        return Err(Error::location(
            40236,
            format!("The field name '{name}' cannot be an operator name"),
        ));
    }
    let operator = match value {
        Bson::Document(operator) if !operator.is_empty() => operator,
        _ => {
            return Err(Error::location(
                40234,
                format!("The field '{name}' must be an accumulator object"),
            ));
        }
    };
    let mut entries = operator.iter();
    let (Some((operator, argument)), None) = (entries.next(), entries.next()) else {
        return Err(Error::location(
            40238,
            format!("The field '{name}' must specify one accumulator"),
        ));
    };
    if !operator.starts_with('$') {
        return Err(Error::location(
            40234,
            format!("The field '{name}' must be an accumulator object"),
        ));
    }
    Accumulation::parse(operator, argument, &context.scope)
}
