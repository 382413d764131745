//! `find`.

use std::sync::Arc;

use bson::raw::RawBsonRef;
use bson::spec::ElementType;
use bson::{Document, RawDocument, RawDocumentBuf};
use millrace_collection::{Collection, Namespace, RecordKind, clustered_key};
use millrace_expression::EvaluationContext;
use millrace_matcher::Matcher;
use millrace_query::executor::{Executor, choose_plan};
use millrace_query::planner;
use millrace_query::planner::Query;
use millrace_update::projection::{Flat, Mode, Projection};
use millrace_value::{Collation, DocumentWriter, Elements, Error, ErrorCode, Operation, Result};

use super::arguments::Arguments;
use super::cursors::{OpenCursor, Source, time_left};
use super::first_batch::{FIRST_BATCH_COUNT, first_batch};
use super::query_arguments::parse_hint;
use super::variables::Bindings;
use super::{CommandRequest, Cost, Counts, Database, Effects, is_empty, reply_ok, views};

/// A `find` of at most this many documents by `_id` range is a point operation.
const POINT_LIMIT: i64 = 1000;

/// The fields of `find`.
const FIELDS: &[&str] = &[
    "filter",
    "sort",
    "projection",
    "hint",
    "skip",
    "limit",
    "batchSize",
    "singleBatch",
    "min",
    "max",
    "returnKey",
    "showRecordId",
    "tailable",
    "oplogReplay",
    "noCursorTimeout",
    "awaitData",
    "allowPartialResults",
    "collation",
    "allowDiskUse",
    "let",
    "term",
    "options",
    "includeQueryStatsMetrics",
    "ntoreturn",
    "requestResumeToken",
    "resumeAfter",
    "encryptionInformation",
];

/// A parsed `find`.
pub(crate) struct FindRequest {
    pub(crate) namespace: Namespace,
    pub(crate) bindings: Bindings,
    pub(crate) query: Query,
    /// The projection as the client wrote it.
    pub(crate) projection: Option<RawDocumentBuf>,
    batch_size: Option<u64>,
    single_batch: bool,
    no_cursor_timeout: bool,
    await_data: bool,
}

/// A look-up by `_id`, or a bounded scan of `_id`, is a point operation.
pub(super) fn classify(request: &CommandRequest<'_>) -> Cost {
    let mut filter = None;
    let mut limited = false;
    let mut sorted_by_id = true;
    for element in Elements::new(request.body) {
        let Ok(element) = element else {
            return Cost::Inline;
        };
        match element.name {
            b"filter" => filter = element.document(),
            b"limit" => {
                let limit = element.integer();
                limited = limit.is_some_and(|limit| (1..=POINT_LIMIT).contains(&limit));
            }
            b"sort" => {
                let mut sort = element.document().into_iter().flat_map(Elements::new);
                sorted_by_id = sort.all(|field| field.is_ok_and(|field| field.name == b"_id"));
            }
            b"tailable" | b"min" | b"max" | b"hint" => return Cost::Blocking,
            _ => {}
        }
    }
    let Some(filter) = filter else {
        return if limited && sorted_by_id {
            Cost::Inline
        } else {
            Cost::Blocking
        };
    };
    if planner::id_equality(filter).is_some() {
        return Cost::Inline;
    }
    let on_id = filter.iter().flatten().all(|(name, value)| {
        name.as_str() == "_id" && !matches!(value, RawBsonRef::RegularExpression(_))
    });
    if on_id && limited && sorted_by_id {
        Cost::Inline
    } else {
        Cost::Blocking
    }
}

impl FindRequest {
    pub(crate) fn parse(database: &str, body: &RawDocument, operation: &Operation) -> Result<Self> {
        let arguments = Arguments::of_command("find", body, FIELDS)?;
        let collation = arguments.collation()?;
        let namespace = Namespace::new(database, arguments.collection()?)?;
        let filter = arguments
            .document("filter")?
            .unwrap_or(RawDocument::from_bytes(EMPTY)?);
        let bindings = Bindings::with_let(arguments.tree("let")?.as_ref(), operation, collation)?;
        let tailable = arguments.flag("tailable")?;
        let await_data = arguments.flag("awaitData")?;
        if await_data && !tailable {
            return Err(Error::new(
                ErrorCode::FailedToParse,
                "Cannot set 'awaitData' without also setting 'tailable'",
            ));
        }
        let projection_document = arguments
            .document("projection")?
            .filter(|projection| !is_empty(projection));
        let projection = match projection_document {
            Some(spec) => Some(Projection::parse_raw(spec, Mode::Find, &bindings.scope)?),
            None => None,
        };
        let matcher = Matcher::parse(filter, &bindings.scope)?;
        if let Some(projection) = &projection {
            projection.check_positional(matcher.root())?;
        }
        let limit = arguments.count("limit")?.filter(|&limit| limit > 0);
        let ntoreturn = arguments.count("ntoreturn")?;
        let query = Query {
            filter: matcher,
            filter_document: filter.to_owned(),
            sort: arguments.tree("sort")?,
            skip: arguments.count("skip")?.unwrap_or(0),
            limit: limit.or(ntoreturn),
            hint: parse_hint(&arguments)?,
            min: arguments.tree("min")?,
            max: arguments.tree("max")?,
            projection,
            return_key: arguments.flag("returnKey")?,
            show_record_id: arguments.flag("showRecordId")?,
            allow_disk_use: arguments.boolean("allowDiskUse")?.unwrap_or(true),
            tailable,
        };
        Ok(Self {
            namespace,
            bindings,
            query,
            projection: projection_document.map(ToOwned::to_owned),
            batch_size: arguments.count("batchSize")?,
            single_batch: arguments.flag("singleBatch")? || ntoreturn.is_some(),
            no_cursor_timeout: arguments.flag("noCursorTimeout")?,
            await_data,
        })
    }
}

/// A projection as a tree, as the plans of views and `explain` want it.
pub(crate) fn projection_tree(projection: Option<&RawDocument>) -> Result<Option<Document>> {
    Ok(projection.map(Document::try_from).transpose()?)
}

/// The encoded empty document.
const EMPTY: &[u8] = &[5, 0, 0, 0, 0];

/// The fields of a `find` that is a plain look-up by `_id`, without anything that needs a plan.
struct Lookup<'a> {
    collection: &'a str,
    id: RawBsonRef<'a>,
    projection: Option<&'a RawDocument>,
}

impl<'a> Lookup<'a> {
    fn recognise(body: &'a RawDocument) -> Option<Self> {
        let mut collection = None;
        let mut id = None;
        let mut projection = None;
        for element in Elements::new(body) {
            let element = element.ok()?;
            match element.name {
                b"find" => collection = Some(element.string()?),
                b"filter" => id = Some(planner::id_equality(element.document()?)?),
                b"projection" => projection = Some(element.document()?),
                b"limit" => drop(element.integer().filter(|&limit| limit >= 0)?),
                // A batch of no documents must leave a cursor open.
                b"batchSize" => drop(element.integer().filter(|&size| size > 0)?),
                b"singleBatch" if element.kind == ElementType::Boolean => {}
                b"$db" | b"lsid" | b"$clusterTime" | b"$readPreference" | b"readConcern" => {}
                // Whatever else it is, a plain look-up by _id it is not.
                _ => return None,
            }
        }
        Some(Self {
            collection: collection?,
            id: id?,
            projection: projection.filter(|p| !is_empty(p)),
        })
    }
}

/// `find`: runs a query and returns its first batch.
pub(super) fn find(
    database: &Arc<Database>,
    request: &CommandRequest<'_>,
    operation: &Operation,
    reply: &mut Vec<u8>,
) -> Result<Effects> {
    if let Some(lookup) = Lookup::recognise(request.body) {
        if let Some(effects) = look_up(database, request, &lookup, operation, reply)? {
            return Ok(effects);
        }
    }
    let parsed = FindRequest::parse(request.database, request.body, operation)?;
    let query = Arc::new(parsed.query);
    let view = database.read_view(operation);
    let source = match database.catalog.at(view).find(&parsed.namespace)? {
        Some(collection) => {
            check_tailable(&query, &collection)?;
            let planned = choose_plan(view, &collection, &query, operation)?;
            let (plan, variables) = (planned.winning, parsed.bindings.variables);
            let shared = Arc::clone(&query);
            let executor = Executor::new(view.clone(), collection, shared, plan, variables)?;
            Source::Query(Box::new(executor))
        }
        None => {
            let projection = projection_tree(parsed.projection.as_deref())?;
            let (namespace, bindings) = (&parsed.namespace, &parsed.bindings);
            let projection = projection.as_ref();
            match views::open(database, namespace, &query, projection, bindings, operation)? {
                Some(found) => Source::Stream(found.stream, found.queries),
                None => return empty_find(namespace, &query, reply),
            }
        }
    };
    let mut cursor = OpenCursor::new(parsed.namespace, source, request.session);
    cursor.remaining = query.limit;
    cursor.tailable = query.tailable;
    cursor.await_data = parsed.await_data;
    cursor.no_timeout = parsed.no_cursor_timeout;
    cursor.time_limit = time_left(operation);
    let batch_size = parsed.batch_size.unwrap_or(FIRST_BATCH_COUNT);
    first_batch(
        database,
        cursor,
        batch_size,
        parsed.single_batch,
        operation,
        reply,
    )
}

/// What a look-up answers of the document.
enum LookupShape<'a> {
    Whole,
    Flat(Flat<'a>),
    Any(Box<Projection>, EvaluationContext<'a>),
}

impl LookupShape<'_> {
    /// Appends it of the document that `bytes` are.
    fn append(&self, out: &mut Vec<u8>, bytes: &[u8]) -> Result<()> {
        match self {
            Self::Whole => {
                out.extend_from_slice(bytes);
                Ok(())
            }
            Self::Flat(flat) => flat.append(out, RawDocument::from_bytes(bytes)?),
            Self::Any(projection, context) => {
                projection.append_raw(out, RawDocument::from_bytes(bytes)?, None, context)
            }
        }
    }
}

/// The short path: one read, the document copied or projected straight into the reply.
fn look_up(
    database: &Arc<Database>,
    request: &CommandRequest<'_>,
    lookup: &Lookup<'_>,
    operation: &Operation,
    reply: &mut Vec<u8>,
) -> Result<Option<Effects>> {
    let namespace = Namespace::new(request.database, lookup.collection)?;
    let bindings;
    let shape = match lookup.projection {
        None => LookupShape::Whole,
        Some(spec) => match Flat::parse(spec) {
            Some(flat) => LookupShape::Flat(flat),
            None => {
                // A command with a collation takes the long way.
                bindings = Bindings::system(operation, Collation::SIMPLE);
                let projection = Projection::parse_raw(spec, Mode::Find, &bindings.scope)?;
                if projection.needs_match_details() {
                    return Ok(None);
                }
                let context = bindings.evaluation(operation);
                LookupShape::Any(Box::new(projection), context)
            }
        },
    };
    let view = database.read_view(operation);
    let catalog = database.catalog.at(view);
    let collection = catalog.find(&namespace)?;
    let key = match &collection {
        None if catalog.view(&namespace)?.is_some() => return Ok(None),
        None => None,
        Some(collection) if collection.kind == RecordKind::Clustered => {
            clustered_key(collection, lookup.id)?
        }
        Some(_) => return Ok(None),
    };
    let mut found = 0;
    let mut failure = None;
    let mut writer = DocumentWriter::new(reply);
    writer.open_document("cursor");
    writer.open_array("firstBatch");
    if let Some(key) = key {
        let before = writer.bytes();
        view.get_with(&key, &mut |bytes| {
            found = 1;
            failure = shape.append(writer.embed("0"), bytes).err();
        })?;
        if found == 0 {
            writer.truncate(before);
        }
    }
    if let Some(error) = failure {
        return Err(error);
    }
    writer.close();
    writer.int64("id", 0);
    writer.string("ns", namespace.as_str());
    writer.close();
    writer.double("ok", 1.0);
    writer.finish();
    Ok(Some(Effects {
        counts: Counts {
            returned: found,
            ..Counts::default()
        },
        ..Effects::default()
    }))
}

fn check_tailable(query: &Query, collection: &Collection) -> Result<()> {
    if !query.tailable {
        return Ok(());
    }
    let refused = |why: &str| {
        Err(Error::new(
            ErrorCode::BadValue,
            format!("error processing query: {why}"),
        ))
    };
    if collection.capped().is_none() {
        return refused("tailable cursor requested on non capped collection");
    }
    let natural = query
        .sort
        .as_ref()
        .is_none_or(|sort| sort.keys().all(|key| key == "$natural"));
    if !natural {
        return refused("cannot use tailable option with a sort other than {$natural: 1}");
    }
    Ok(())
}

/// The answer of a collection that does not exist.
fn empty_find(namespace: &Namespace, query: &Query, reply: &mut Vec<u8>) -> Result<Effects> {
    if query.tailable {
        return Err(Error::new(
            ErrorCode::BadValue,
            "error processing query: tailable cursor requested on non capped collection",
        ));
    }
    reply_ok(reply, |writer| {
        writer.open_document("cursor");
        writer.open_array("firstBatch");
        writer.close();
        writer.int64("id", 0);
        writer.string("ns", namespace.as_str());
        writer.close();
        Ok(())
    })?;
    Ok(Effects::default())
}
