//! Updates made of operators: `{ $set: { a: 1 }, $inc: { b: 1 } }`.

use bson::{Bson, Document};
use millrace_expression::Scope;
use millrace_value::{Error, ErrorCode, Result, type_alias};

use super::array_filters::ArrayFilters;
use super::change::{Change, compare_fields};
use super::operators::{self, Context, Failure, Kind, Operand};
use super::path::UpdatePath;
use super::rename::Rename;
use super::storage::Room;
use super::tree::{FieldName, Leaf, ObjectNode};
use super::walk::Walk;
use super::{storage, text};

/// An update made of operators.
#[derive(Debug)]
pub(super) struct Modifiers {
    root: ObjectNode,
    renames: Vec<Rename>,
    filters: ArrayFilters,
}

impl Modifiers {
    /// Parses `{ $operator: { path: operand, ... }, ... }`.
    pub(super) fn parse(update: &Document, filters: ArrayFilters, scope: &Scope) -> Result<Self> {
        let mut modifiers = Self {
            root: ObjectNode::default(),
            renames: Vec::new(),
            filters,
        };
        for (name, operands) in update {
            let Some(kind) = operators::find(name) else {
                return Err(Error::new(
                    ErrorCode::FailedToParse,
                    format!(
                        "Unknown modifier: {name}. Expected a valid update modifier or \
                         pipeline-style update specified as an array"
                    ),
                ));
            };
            let Bson::Document(operands) = operands else {
                return Err(Error::new(
                    ErrorCode::FailedToParse,
                    format!(
                        "Modifiers operate on fields but we found type {} instead. For example: \
                         {{$mod: {{<field>: ...}}}} not {{{}}}",
                        type_alias(operands),
                        text::element(name, operands)
                    ),
                ));
            };
            for (path, value) in operands {
                modifiers.add(kind, &Operand { path, value, scope })?;
            }
        }
        modifiers.filters.check_all_used(update)?;
        Ok(modifiers)
    }

    fn add(&mut self, kind: Kind, operand: &Operand<'_>) -> Result<()> {
        let path = UpdatePath::parse(operand.path)?;
        match kind {
            Kind::Modifier(parse) => {
                let modifier = parse(operand)?;
                self.insert(&path, Leaf::Modifier(modifier))
            }
            Kind::Rename => {
                self.insert(&path, Leaf::RenameSource)?;
                let Bson::String(target) = operand.value else {
                    return Err(Error::new(
                        ErrorCode::BadValue,
                        format!(
                            "The 'to' field for $rename must be a string: {}",
                            text::element(operand.path, operand.value)
                        ),
                    ));
                };
                if target.contains('\0') {
                    return Err(Error::new(
                        ErrorCode::BadValue,
                        "The 'to' field for $rename cannot contain an embedded null byte",
                    ));
                }
                let target = UpdatePath::parse(target)?;
                self.renames.push(Rename::new(&path, &target)?);
                self.insert(&target, Leaf::RenameTarget(self.renames.len() - 1))
            }
        }
    }

    fn insert(&mut self, path: &UpdatePath<'_>, leaf: Leaf) -> Result<()> {
        self.filters.resolve(path)?;
        self.root.insert(path, leaf)
    }

    /// Changes `document`.
    pub(super) fn apply(&self, document: &mut Document, context: Context<'_>) -> Result<Change> {
        // The sources of renames are in the tree too, so that it has every field which may change.
        let touched = self.root.children.keys().map(FieldName::as_str);
        let before: Vec<(&str, Option<Bson>)> = touched
            .map(|name| (name, document.get(name).cloned()))
            .collect();
        let renamed = self
            .renames
            .iter()
            .map(|r| r.fetch(document))
            .collect::<Result<Vec<_>>>()?;
        let walk = Walk {
            context,
            filters: &self.filters,
            renamed: &renamed,
            room: Room::new(context.is_insert),
        };
        if let Err(failure) = walk.apply(&self.root, document) {
            return Err(Failure::resolve(failure, document));
        }
        for (rename, value) in self.renames.iter().zip(&renamed) {
            if value.is_some() {
                rename.remove_source(document);
            }
        }
        let change = compare_fields(before, document);
        if change.sets_dollar_field() {
            storage::check_replacement_fields(document)?;
        }
        Ok(change)
    }
}
