//! `$bucketAuto`.

use bson::{Bson, Document, doc};
use millrace_expression::Expression;
use millrace_expression::accumulator::{Accumulation, Accumulator};
use millrace_expression::sort::{ExternalSort, Sorted};
use millrace_value::key::TypeBits;
use millrace_value::{Error, ErrorCode, Number, Operation, Result, type_alias};

use super::{Run, Stage, group, shown};
use crate::context::{Context, ParseContext};
use crate::granularity::Granularity;
use crate::{DocumentStream, Documents};

/// Distributes documents over buckets of about equal size, by the value of an expression.
#[derive(Clone, Debug)]
pub(crate) struct BucketAuto {
    specification: Document,
    group_by: Expression,
    buckets: i64,
    fields: Vec<(String, Accumulation)>,
    granularity: Option<Granularity>,
}

impl Run for BucketAuto {
    fn to_document(&self) -> Document {
        doc! {"$bucketAuto": self.specification.clone()}
    }

    fn run(
        &self,
        source: Box<dyn DocumentStream>,
        context: &Context,
    ) -> Result<Box<dyn DocumentStream>> {
        Ok(Box::new(BucketAutoStream {
            state: State::Reading(source),
            stage: self.clone(),
            context: context.clone(),
        }))
    }
}

struct BucketAutoStream {
    state: State,
    stage: BucketAuto,
    context: Context,
}

enum State {
    Reading(Box<dyn DocumentStream>),
    Filling(Box<Filling>),
}

/// The documents in order, and how far they have been put into buckets.
struct Filling {
    sorted: Sorted<Document>,
    /// The first document that is not in a bucket yet.
    ahead: Option<Item>,
    remaining: i64,
    buckets_left: i64,
    /// The upper bound of the last bucket, where a granularity is given.
    bound: Option<f64>,
}

/// A document and the value it was sorted by.
struct Item {
    value: Bson,
    document: Document,
    key: Vec<u8>,
}

/// A bucket while it is filled.
struct Bucket {
    min: Bson,
    max: Item,
    accumulators: Vec<Box<dyn Accumulator>>,
}

impl BucketAutoStream {
    /// Sorts the documents by the value of the expression.
    fn sort(&self, source: &mut dyn DocumentStream, operation: &Operation) -> Result<Filling> {
        let eval = self.context.evaluation(operation);
        let mut sort = ExternalSort::new(None, self.context.scratch(), self.context.allow_disk_use);
        let mut remaining = 0;
        while let Some(document) = source.next(operation)? {
            let value = self
                .stage
                .group_by
                .evaluate(&document, &eval)?
                .unwrap_or(Bson::Null);
            if self.stage.granularity.is_some() {
                check_rounded(&value)?;
            }
            let mut key = Vec::new();
            self.context.collation.encode_key_bson(
                &mut key,
                &mut TypeBits::default(),
                &value,
                false,
            )?;
            sort.push(operation, key, doc! {"v": value, "d": document})?;
            remaining += 1;
        }
        let mut filling = Filling {
            sorted: sort.finish(operation)?,
            ahead: None,
            remaining,
            buckets_left: self.stage.buckets,
            bound: None,
        };
        filling.advance(operation)?;
        Ok(filling)
    }

    fn start(&self, first: Item, operation: &Operation) -> Result<Bucket> {
        let eval = self.context.evaluation(operation);
        let accumulators = self
            .stage
            .fields
            .iter()
            .map(|(_, accumulation)| accumulation.start(&Bson::Null, &eval))
            .collect::<Result<_>>()?;
        let mut bucket = Bucket {
            min: first.value.clone(),
            max: first,
            accumulators,
        };
        self.accumulate(&mut bucket, operation)?;
        Ok(bucket)
    }

    /// Gives the document that was last put into the bucket to its accumulators.
    fn accumulate(&self, bucket: &mut Bucket, operation: &Operation) -> Result<()> {
        let eval = self.context.evaluation(operation);
        for ((_, accumulation), accumulator) in
            self.stage.fields.iter().zip(&mut bucket.accumulators)
        {
            accumulator.add(accumulation.input(&bucket.max.document, &eval)?)?;
        }
        let bytes: usize = bucket
            .accumulators
            .iter()
            .map(|one| one.memory_bytes())
            .sum();
        if bytes > operation.limits().stage_memory_bytes {
            return Err(Error::new(
                ErrorCode::ExceededMemoryLimit,
                "Exceeded memory limit for $bucketAuto: one bucket does not fit in memory",
            ));
        }
        Ok(())
    }

    /// The next bucket, none when there is no document left.
    fn fill(&self, filling: &mut Filling, operation: &Operation) -> Result<Option<Document>> {
        let Some(first) = filling.take(operation)? else {
            return Ok(None);
        };
        let share = (filling.remaining + 1) as f64 / filling.buckets_left.max(1) as f64;
        let size = rounded_share(share);
        filling.buckets_left -= 1;
        let mut bucket = self.start(first, operation)?;
        let mut count = 1;
        while count < size || filling.buckets_left == 0 {
            let Some(item) = filling.take(operation)? else {
                break;
            };
            bucket.max = item;
            self.accumulate(&mut bucket, operation)?;
            count += 1;
        }
        let bound = match self.stage.granularity {
            Some(granularity) => {
                Some(self.extend_to_bound(filling, &mut bucket, granularity, operation)?)
            }
            None => {
                self.extend_by_equals(filling, &mut bucket, operation)?;
                None
            }
        };
        self.finish(filling, bucket, bound).map(Some)
    }

    /// Documents with equal values belong to one bucket.
    fn extend_by_equals(
        &self,
        filling: &mut Filling,
        bucket: &mut Bucket,
        operation: &Operation,
    ) -> Result<()> {
        while filling
            .ahead
            .as_ref()
            .is_some_and(|item| item.key == bucket.max.key)
        {
            if let Some(item) = filling.take(operation)? {
                bucket.max = item;
                self.accumulate(bucket, operation)?;
            }
        }
        Ok(())
    }

    /// Rounds the bucket's upper bound up and takes in all documents below it; gives the lower bound.
    fn extend_to_bound(
        &self,
        filling: &mut Filling,
        bucket: &mut Bucket,
        granularity: Granularity,
        operation: &Operation,
    ) -> Result<f64> {
        let lower = filling
            .bound
            .unwrap_or_else(|| granularity.round_down(as_f64(&bucket.min)));
        let upper = granularity.round_up(as_f64(&bucket.max.value));
        while filling
            .ahead
            .as_ref()
            .is_some_and(|item| as_f64(&item.value) < upper)
        {
            if let Some(item) = filling.take(operation)? {
                bucket.max = item;
                self.accumulate(bucket, operation)?;
            }
        }
        filling.bound = Some(upper);
        Ok(lower)
    }

    fn finish(
        &self,
        filling: &Filling,
        mut bucket: Bucket,
        lower: Option<f64>,
    ) -> Result<Document> {
        let (min, max) = match (lower, filling.bound) {
            (Some(lower), Some(upper)) => (Bson::Double(lower), Bson::Double(upper)),
            // The upper bound is exclusive but for the last bucket: it is the next one's lower bound.
            _ => {
                let next = filling.ahead.as_ref().map(|item| item.value.clone());
                (bucket.min, next.unwrap_or(bucket.max.value))
            }
        };
        let mut document = doc! {"_id": {"min": min, "max": max}};
        for ((name, _), accumulator) in self.stage.fields.iter().zip(&mut bucket.accumulators) {
            document.insert(name.clone(), accumulator.finish()?.unwrap_or(Bson::Null));
        }
        Ok(document)
    }
}

impl Filling {
    /// Takes the document ahead and reads the one after it.
    fn take(&mut self, operation: &Operation) -> Result<Option<Item>> {
        let Some(item) = self.ahead.take() else {
            return Ok(None);
        };
        self.remaining -= 1;
        self.advance(operation)?;
        Ok(Some(item))
    }

    fn advance(&mut self, operation: &Operation) -> Result<()> {
        self.ahead = self
            .sorted
            .next_keyed(operation)?
            .map(|(key, mut pair)| Item {
                value: pair.remove("v").unwrap_or(Bson::Null),
                document: match pair.remove("d") {
                    Some(Bson::Document(document)) => document,
                    _ => Document::new(),
                },
                key,
            });
        Ok(())
    }
}

impl DocumentStream for BucketAutoStream {
    fn next(&mut self, operation: &Operation) -> Result<Option<Document>> {
        if let State::Reading(source) = &mut self.state {
            let mut source = std::mem::replace(source, Box::new(Documents::empty()));
            self.state = State::Filling(Box::new(self.sort(source.as_mut(), operation)?));
        }
        let state = std::mem::replace(
            &mut self.state,
            State::Reading(Box::new(Documents::empty())),
        );
        let State::Filling(mut filling) = state else {
            return Ok(None);
        };
        let bucket = self.fill(&mut filling, operation)?;
        self.state = State::Filling(filling);
        Ok(bucket)
    }

    fn memory_bytes(&self) -> usize {
        match &self.state {
            State::Reading(source) => source.memory_bytes(),
            State::Filling(filling) => filling.sorted.memory_bytes(),
        }
    }
}

/// A bucket's share as a number of documents, at least one.
#[expect(
    clippy::cast_possible_truncation,
    reason = "a share is at most the number of documents, which was counted in an i64"
)]
fn rounded_share(share: f64) -> i64 {
    (share.round() as i64).max(1)
}

fn as_f64(value: &Bson) -> f64 {
    Number::from_bson(value).map_or(0.0, Number::as_f64)
}

/// Granularities are for numbers that are not negative.
fn check_rounded(value: &Bson) -> Result<()> {
    let Some(number) = Number::from_bson(value) else {
        return Err(Error::location(
            40258,
            format!(
                "$bucketAuto can specify a 'granularity' with numeric boundaries only, but found a \
                 value with type: {}",
                type_alias(value)
            ),
        ));
    };
    if number.is_nan() {
        return Err(Error::location(
            40259,
            "$bucketAuto can specify a 'granularity' with numeric boundaries only, but found a NaN",
        ));
    }
    if number.is_negative() {
        return Err(Error::location(
            40260,
            "$bucketAuto can specify a 'granularity' with non-negative numbers only, but found a \
             negative number",
        ));
    }
    Ok(())
}

pub(super) fn parse(_: &str, argument: &Bson, context: &ParseContext) -> Result<Vec<Stage>> {
    let Bson::Document(options) = argument else {
        return Err(Error::location(
            40240,
            format!(
                "The argument to $bucketAuto must be an object, but found type: {}.",
                type_alias(argument)
            ),
        ));
    };
    let (mut group_by, mut buckets, mut granularity) = (None, None, None);
    let mut output = &doc! {"count": {"$sum": 1}};
    for (option, value) in options {
        match option.as_str() {
            "groupBy" => group_by = Some(parse_group_by(value, context)?),
            "buckets" => buckets = Some(parse_buckets(value)?),
            "output" => output = parse_output(value)?,
            "granularity" => granularity = Some(parse_granularity(value)?),
            _ => {
                return Err(Error::location(
                    40245,
                    format!("Unrecognized option to $bucketAuto: {option}."),
                ));
            }
        }
    }
    let (Some(group_by), Some(buckets)) = (group_by, buckets) else {
        return Err(Error::location(
            40246,
            "$bucketAuto requires 'groupBy' and 'buckets' to be specified.",
        ));
    };
    let fields = output
        .iter()
        .map(|(name, value)| Ok((name.clone(), group::parse_field(name, value, context)?)))
        .collect::<Result<_>>()?;
    let specification = options.clone();
    Ok(vec![Stage::BucketAuto(BucketAuto {
        specification,
        group_by,
        buckets,
        fields,
        granularity,
    })])
}

fn parse_group_by(value: &Bson, context: &ParseContext) -> Result<Expression> {
    let valid = match value {
        Bson::Document(_) => true,
        Bson::String(path) => path.starts_with('$'),
        _ => false,
    };
    if !valid {
        return Err(Error::location(
            40239,
            format!(
                "The $bucketAuto 'groupBy' field must be defined as a $-prefixed path or an \
                 expression object, but found: {}",
                shown(value)
            ),
        ));
    }
    Expression::parse(value, &context.scope)
}

fn parse_buckets(value: &Bson) -> Result<i64> {
    let number = Number::from_bson(value).ok_or_else(|| {
        Error::location(
            40241,
            format!(
                "The $bucketAuto 'buckets' field must be a numeric value, but found type: {}",
                type_alias(value)
            ),
        )
    })?;
    let buckets = number.as_i64_exact().and_then(|count| i32::try_from(count).ok()).ok_or_else(|| {
        Error::location(
            40242,
            format!(
                "The $bucketAuto 'buckets' field must be representable as a 32-bit integer, but \
                 found {}",
                shown(value)
            ),
        )
    })?;
    if buckets <= 0 {
        return Err(Error::location(
            40243,
            format!("The $bucketAuto 'buckets' field must be greater than 0, but found: {buckets}"),
        ));
    }
    Ok(i64::from(buckets))
}

fn parse_output(value: &Bson) -> Result<&Document> {
    value.as_document().ok_or_else(|| {
        Error::location(
            40244,
            format!(
                "The $bucketAuto 'output' field must be an object, but found type: {}",
                type_alias(value)
            ),
        )
    })
}

fn parse_granularity(value: &Bson) -> Result<Granularity> {
    let Bson::String(name) = value else {
        return Err(Error::location(
            40261,
            format!(
                "The $bucketAuto 'granularity' field must be a string, but found type: {}",
                type_alias(value)
            ),
        ));
    };
    Granularity::from_name(name)
        .ok_or_else(|| Error::location(40257, format!("Unknown rounding granularity '{name}'")))
}
