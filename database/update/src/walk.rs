//! Applying the tree of an update to a document.

use bson::{Bson, Document};
use millrace_value::{Error, ErrorCode, array_index};

use super::array_filters::ArrayFilters;
use super::identical::identical;
use super::operators::{Context, Effect, Failure};
use super::storage::Room;
use super::text;
use super::trail::Trail;
use super::tree::{ArrayNode, Leaf, Node, ObjectNode, merge};

/// The most nulls that one new element may put before itself into an array.
const PADDING_MAX: usize = 1_500_000;

/// The walk of an update through one document.
pub(super) struct Walk<'w> {
    pub(super) context: Context<'w>,
    pub(super) filters: &'w ArrayFilters,
    /// The value that each `$rename` of the update found at its source.
    pub(super) renamed: &'w [Option<Bson>],
    pub(super) room: Room,
}

type Outcome<T = ()> = Result<T, Failure>;

/// What the children of an [`ObjectNode`] can be applied to.
enum Container<'d> {
    Document(&'d mut Document),
    Array(&'d mut Vec<Bson>),
}

impl Walk<'_> {
    /// Changes `document`. After an error it may be changed in part.
    pub(super) fn apply(&self, root: &ObjectNode, document: &mut Document) -> Outcome {
        self.apply_object(root, Container::Document(document), None)
    }

    fn apply_object(
        &self,
        node: &ObjectNode,
        mut container: Container<'_>,
        trail: Option<&Trail<'_>>,
    ) -> Outcome {
        self.for_each_child(node, trail, |name, child, here| match &mut container {
            Container::Document(document) => self.apply_to_field(document, name, child, here),
            Container::Array(array) => self.apply_to_element(array, name, child, here),
        })
    }

    /// Calls `change` with every child, in order. The one for the matched element comes together with
    /// the one for the same position, or else last.
    fn for_each_child(
        &self,
        node: &ObjectNode,
        trail: Option<&Trail<'_>>,
        mut change: impl FnMut(&str, &Node, &Trail<'_>) -> Outcome,
    ) -> Outcome {
        let Some(matched) = &node.matched else {
            for (name, child) in &node.children {
                let name = name.as_str();
                change(name, child, &Trail::field(trail, name))?;
            }
            return Ok(());
        };
        let Some(index) = self.context.matched_index else {
            return Err(bad_value(
                "The positional operator did not find the match needed from the query.",
            ));
        };
        let position = index.to_string();
        let mut is_merged = false;
        for (name, child) in &node.children {
            let name = name.as_str();
            let here = Trail::field(trail, name);
            if name == position {
                is_merged = true;
                change(name, &merge(child, matched, &here.to_string())?, &here)?;
            } else {
                change(name, child, &here)?;
            }
        }
        if is_merged {
            Ok(())
        } else {
            change(&position, matched, &Trail::field(trail, &position))
        }
    }

    fn apply_to_field(
        &self,
        document: &mut Document,
        name: &str,
        node: &Node,
        here: &Trail<'_>,
    ) -> Outcome {
        if let Some(value) = document.get_mut(name) {
            if self.apply_to_value(value, node, here)? == Effect::Removed {
                document.remove(name);
            }
            return Ok(());
        }
        if let Some(value) = self.create(node, here)? {
            document.insert(name, value);
            if let Some(parent) = here.parent().filter(|parent| parent.is_in_id()) {
                return Err(created_in_id(parent, &Bson::Document(document.clone())));
            }
        }
        Ok(())
    }

    fn apply_to_element(
        &self,
        array: &mut Vec<Bson>,
        name: &str,
        node: &Node,
        here: &Trail<'_>,
    ) -> Outcome {
        let parent = here.parent();
        let Some(index) = array_index(name) else {
            return self.check_blocked(node, here, name, &|| {
                let name = parent.map(Trail::name).unwrap_or_default();
                text::element(&name, &Bson::Array(array.clone()))
            });
        };
        if let Some(value) = array.get_mut(index) {
            if self.apply_to_value(value, node, here)? == Effect::Removed {
                // The elements behind keep their positions.
                array[index] = Bson::Null;
            }
            return Ok(());
        }
        if let Some(value) = self.create(node, here)? {
            if index - array.len() > PADDING_MAX {
                return Err(Failure::Final(Error::new(
                    ErrorCode::CannotBackfillArray,
                    format!("can't backfill more than {PADDING_MAX} elements"),
                )));
            }
            self.room.take_nulls(index - array.len())?;
            array.resize(index, Bson::Null);
            array.push(value);
            if let Some(parent) = parent.filter(|parent| parent.is_in_id()) {
                return Err(created_in_id(parent, &Bson::Array(array.clone())));
            }
        }
        Ok(())
    }

    fn apply_to_value(&self, value: &mut Bson, node: &Node, here: &Trail<'_>) -> Outcome<Effect> {
        match (node, value) {
            (Node::Leaf(leaf), value) => {
                let effect = self.apply_leaf(value, leaf, here)?;
                if effect != Effect::Unchanged && here.is_in_id() {
                    return Err(Failure::Final(immutable_id(here)));
                }
                if effect == Effect::Changed {
                    self.room.take(value)?;
                }
                return Ok(effect);
            }
            (Node::Object(node), Bson::Document(document)) => {
                self.apply_object(node, Container::Document(document), Some(here))?;
            }
            (Node::Object(node), Bson::Array(array)) => {
                self.apply_object(node, Container::Array(array), Some(here))?;
            }
            (Node::Object(node), value) => {
                let element = || text::element(&here.name(), value);
                self.for_each_child(node, Some(here), |name, child, below| {
                    self.check_blocked(child, below, name, &element)
                })?;
            }
            (Node::Array(node), Bson::Array(array)) => self.apply_filtered(node, array, here)?,
            (Node::Array(_), value) => {
                return Err(bad_value(format!(
                    "Cannot apply array updates to non-array element {}",
                    text::element(&here.name(), value)
                )));
            }
        }
        Ok(Effect::Changed)
    }

    fn apply_leaf(&self, value: &mut Bson, leaf: &Leaf, here: &Trail<'_>) -> Outcome<Effect> {
        match leaf {
            Leaf::Modifier(modifier) => modifier.modify(value, here, &self.context),
            Leaf::RenameSource => Ok(Effect::Unchanged),
            Leaf::RenameTarget(number) => match &self.renamed[*number] {
                Some(source) if !identical(source, value) => {
                    *value = source.clone();
                    Ok(Effect::Changed)
                }
                _ => Ok(Effect::Unchanged),
            },
        }
    }

    /// Changes the elements that array filters select. An element that several of them select gets
    /// all their changes at once.
    fn apply_filtered(&self, node: &ArrayNode, array: &mut [Bson], here: &Trail<'_>) -> Outcome {
        let evaluation = self.context.evaluation;
        for (index, value) in array.iter_mut().enumerate() {
            evaluation.operation.check()?;
            let here = here.element(index);
            let mut selected: Vec<&Node> = Vec::new();
            for (name, child) in &node.children {
                if self.filters.selects(name, value, evaluation)? {
                    selected.push(child);
                }
            }
            let effect = match selected.as_slice() {
                [] => Effect::Unchanged,
                [only] => self.apply_to_value(value, only, &here)?,
                [first, rest @ ..] => {
                    let place = here.to_string();
                    let mut both = merge(first, rest[0], &place)?;
                    for node in &rest[1..] {
                        both = merge(&both, node, &place)?;
                    }
                    self.apply_to_value(value, &both, &here)?
                }
            };
            if effect == Effect::Removed {
                *value = Bson::Null;
            }
        }
        Ok(())
    }

    /// The value that comes to a path which does not exist, if any.
    fn create(&self, node: &Node, here: &Trail<'_>) -> Outcome<Option<Bson>> {
        let created = match node {
            Node::Leaf(Leaf::Modifier(modifier)) => modifier.create(&self.context)?,
            Node::Leaf(Leaf::RenameSource) => None,
            Node::Leaf(Leaf::RenameTarget(number)) => self.renamed[*number].clone(),
            Node::Object(node) => {
                let mut document = Document::new();
                self.for_each_child(node, Some(here), |name, child, below| {
                    if let Some(value) = self.create(child, below)? {
                        document.insert(name, value);
                    }
                    Ok(())
                })?;
                // Operators that find nothing to do create no empty documents on their way.
                return Ok((!document.is_empty()).then_some(Bson::Document(document)));
            }
            Node::Array(_) => return Err(missing_array(here)),
        };
        if let Some(value) = &created {
            self.room.take(value)?;
        }
        Ok(created)
    }

    /// Checks that the operators at and below `node` do not mind that their path cannot exist: it
    /// would lead through `element`, which cannot have a field `first`.
    fn check_blocked(
        &self,
        node: &Node,
        here: &Trail<'_>,
        first: &str,
        element: &dyn Fn() -> String,
    ) -> Outcome {
        let is_harmless = match node {
            Node::Leaf(Leaf::Modifier(modifier)) => modifier.accepts_blocked_path(&self.context),
            Node::Leaf(Leaf::RenameSource) => true,
            Node::Leaf(Leaf::RenameTarget(number)) => self.renamed[*number].is_none(),
            Node::Object(node) => {
                return self.for_each_child(node, Some(here), |_, child, below| {
                    self.check_blocked(child, below, first, element)
                });
            }
            Node::Array(_) => return Err(missing_array(here)),
        };
        if is_harmless {
            return Ok(());
        }
        Err(Failure::Final(Error::new(
            ErrorCode::PathNotViable,
            format!("Cannot create field '{first}' in element {{{}}}", element()),
        )))
    }
}

fn bad_value(message: impl Into<String>) -> Failure {
    Failure::Final(Error::new(ErrorCode::BadValue, message))
}

fn missing_array(here: &Trail<'_>) -> Failure {
    bad_value(format!(
        "The path '{here}' must exist in the document in order to apply array updates."
    ))
}

/// The message about an operator that would change `_id` or something in it.
pub(super) fn immutable_id(path: impl std::fmt::Display) -> Error {
    Error::new(
        ErrorCode::ImmutableField,
        format!("Performing an update on the path '{path}' would modify the immutable field '_id'"),
    )
}

fn created_in_id(parent: &Trail<'_>, value: &Bson) -> Failure {
    Failure::Final(Error::new(
        ErrorCode::ImmutableField,
        format!(
            "Updating the path '{parent}' to {} would modify the immutable field '_id'",
            text::element(&parent.name(), value)
        ),
    ))
}
