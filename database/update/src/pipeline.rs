//! Updates given as a pipeline: `[ { $set: { total: { $add: ["$a", "$b"] } } } ]`.

use bson::raw::{RawArray, RawBsonRef};
use bson::{Bson, Document};
use millrace_expression::{EvaluationContext, Expression, Scope};
use millrace_value::{Error, ErrorCode, Result, document_text, type_alias, value_text};

use crate::projection::{AddFields, Mode, Projection};

/// Stages that exist but make no sense in an update, since they do not turn one document into one.
const OTHER_STAGES: &[&str] = &[
    "$_internalInhibitOptimization",
    "$bucket",
    "$bucketAuto",
    "$changeStream",
    "$changeStreamSplitLargeEvent",
    "$collStats",
    "$count",
    "$currentOp",
    "$densify",
    "$documents",
    "$facet",
    "$fill",
    "$geoNear",
    "$graphLookup",
    "$group",
    "$indexStats",
    "$limit",
    "$listLocalSessions",
    "$listSampledQueries",
    "$listSearchIndexes",
    "$listSessions",
    "$lookup",
    "$match",
    "$merge",
    "$out",
    "$planCacheStats",
    "$redact",
    "$sample",
    "$search",
    "$searchMeta",
    "$setWindowFields",
    "$skip",
    "$sort",
    "$sortByCount",
    "$unionWith",
    "$unwind",
    "$vectorSearch",
];

/// Stages that an update may have.
const STAGES: &[&str] = &[
    "$addFields",
    "$project",
    "$replaceRoot",
    "$replaceWith",
    "$set",
    "$unset",
];

/// Fails when a stage has a name that no stage has. MongoDB looks at the names of all statements before it
/// runs the first, so such a name fails the command; any other mistake fails its statement.
pub fn check_stage_names(stages: &RawArray) -> Result<()> {
    for stage in stages.into_iter().flatten() {
        let RawBsonRef::Document(stage) = stage else {
            continue;
        };
        if let Some(Ok((name, _))) = stage.iter().next() {
            let name = name.as_str();
            if !STAGES.contains(&name) && !OTHER_STAGES.contains(&name) {
                return Err(unrecognized_stage(name));
            }
        }
    }
    Ok(())
}

fn unrecognized_stage(name: &str) -> Error {
    Error::location(
        40_324,
        format!("Unrecognized pipeline stage name: '{name}'"),
    )
}

/// An update given as a pipeline.
#[derive(Debug)]
pub(super) struct UpdatePipeline {
    stages: Vec<Stage>,
}

#[derive(Debug)]
enum Stage {
    /// `$set`, `$addFields`.
    AddFields(AddFields),
    /// `$project`, `$unset`.
    Project(Projection),
    /// `$replaceRoot`, `$replaceWith`; messages name the operand differently.
    ReplaceRoot {
        root: Expression,
        operand: &'static str,
    },
}

impl UpdatePipeline {
    /// Parses a list of stages.
    pub(super) fn parse(stages: &[Bson], scope: &Scope) -> Result<Self> {
        let parse = |stage: &Bson| match stage {
            Bson::Document(stage) => Stage::parse(stage, scope),
            _ => Err(Error::new(
                ErrorCode::TypeMismatch,
                "Each element of the 'pipeline' array must be an object",
            )),
        };
        Ok(Self {
            stages: stages.iter().map(parse).collect::<Result<_>>()?,
        })
    }

    /// What the pipeline makes of `document`.
    pub(super) fn run(
        &self,
        document: Document,
        evaluation: &EvaluationContext<'_>,
    ) -> Result<Document> {
        self.stages.iter().try_fold(document, |document, stage| {
            evaluation.operation.check()?;
            stage.run(document, evaluation)
        })
    }
}

impl Stage {
    fn parse(stage: &Document, scope: &Scope) -> Result<Self> {
        let mut fields = stage.iter();
        let (Some((name, operand)), None) = (fields.next(), fields.next()) else {
            return Err(Error::location(
                40_323,
                "A pipeline stage specification object must contain exactly one field.",
            ));
        };
        match name.as_str() {
            "$set" | "$addFields" => match operand {
                Bson::Document(operand) => AddFields::parse(operand, scope).map(Self::AddFields),
                other => Err(Error::location(
                    40_272,
                    format!(
                        "{name} specification stage must be an object, got {}",
                        type_alias(other)
                    ),
                )),
            },
            "$project" => match operand {
                Bson::Document(operand) => Self::project(operand, scope),
                _ => Err(Error::location(
                    15_969,
                    "$project specification must be an object",
                )),
            },
            "$unset" => Self::project(&excluded_fields(operand)?, scope),
            "$replaceRoot" => Self::replace_root(operand, scope),
            "$replaceWith" => Ok(Self::ReplaceRoot {
                root: Expression::parse(operand, scope)?,
                operand: "'replacement document'",
            }),
            other if OTHER_STAGES.contains(&other) => Err(Error::new(
                ErrorCode::InvalidOptions,
                format!("{other} is not allowed to be used within an update"),
            )),
            other => Err(unrecognized_stage(other)),
        }
    }

    fn project(specification: &Document, scope: &Scope) -> Result<Self> {
        Projection::parse(specification, Mode::Aggregate, scope).map(Self::Project)
    }

    fn replace_root(operand: &Bson, scope: &Scope) -> Result<Self> {
        let Bson::Document(fields) = operand else {
            return Err(Error::location(
                40_229,
                format!(
                    "expected an object as specification for $replaceRoot stage, got {}",
                    type_alias(operand)
                ),
            ));
        };
        if let Some(name) = fields.keys().find(|name| *name != "newRoot") {
            return Err(Error::new(
                ErrorCode::IDLUnknownField,
                format!("BSON field '$replaceRoot.{name}' is an unknown field."),
            ));
        }
        let root = fields.get("newRoot").ok_or_else(|| {
            Error::new(
                ErrorCode::IDLFailedToParse,
                "BSON field '$replaceRoot.newRoot' is missing but a required field",
            )
        })?;
        Ok(Self::ReplaceRoot {
            root: Expression::parse(root, scope)?,
            operand: "'newRoot'",
        })
    }

    fn run(&self, document: Document, evaluation: &EvaluationContext<'_>) -> Result<Document> {
        match self {
            Self::AddFields(fields) => fields.apply(document, evaluation),
            Self::Project(projection) => projection.apply(document, None, evaluation),
            Self::ReplaceRoot { root, operand } => match root.evaluate(&document, evaluation)? {
                Some(Bson::Document(root)) => Ok(root),
                other => {
                    let (value, kind) = other.as_ref().map_or_else(
                        || ("MISSING".to_owned(), "missing"),
                        |value| (value_text(value), type_alias(value)),
                    );
                    Err(Error::location(
                        40_228,
                        format!(
                            "{operand} expression must evaluate to an object, but resulting value \
                             was: {value}. Type of resulting value: '{kind}'. Input document: {}",
                            document_text(&document)
                        ),
                    ))
                }
            },
        }
    }
}

/// The projection that `$unset` stands for: a field's name or a list of such.
fn excluded_fields(operand: &Bson) -> Result<Document> {
    let names = match operand {
        Bson::String(_) => std::slice::from_ref(operand),
        Bson::Array(names) => names.as_slice(),
        _ => {
            return Err(Error::location(
                31_002,
                "$unset specification must be a string or an array",
            ));
        }
    };
    if names.is_empty() {
        return Err(Error::location(
            31_119,
            "$unset specification must be a string or an array with at least one field",
        ));
    }
    let mut fields = Document::new();
    for name in names {
        let Bson::String(name) = name else {
            return Err(Error::location(
                31_120,
                "$unset specification must be a string or an array containing only string values",
            ));
        };
        fields.insert(name, 0);
    }
    Ok(fields)
}
