//! The paths of an update as a tree, so that conflicts show and every document is walked once.
//!
//! ```text
//!   { $set: { "a.b": 1, "a.c.$[].d": 2 }, $unset: { e: 1 } }
//!
//!   Object --a--> Object --b--> Leaf($set 1)
//!     |              \-----c--> Array --[]--> Object --d--> Leaf($set 2)
//!     \------e--> Leaf($unset)
//! ```

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use millrace_value::{Error, ErrorCode, Result};

use super::operators::Modifier;
use super::path::{Component, UpdatePath};

/// What an update does at and below one place of a document.
#[derive(Clone, Debug)]
pub(super) enum Node {
    /// It changes fields of a document, or elements of an array by their position.
    Object(ObjectNode),
    /// It changes elements of an array that filters select.
    Array(ArrayNode),
    /// It changes the value itself.
    Leaf(Leaf),
}

/// Changes below a document.
#[derive(Clone, Debug, Default)]
pub(super) struct ObjectNode {
    /// By field, in the order in which fields are changed and new ones are created.
    pub(super) children: BTreeMap<FieldName, Node>,
    /// The change to the array element that the query matched (`$`).
    pub(super) matched: Option<Box<Node>>,
}

/// Changes below an array, by the name of the array filter; the empty name selects all elements.
#[derive(Clone, Debug, Default)]
pub(super) struct ArrayNode {
    pub(super) children: BTreeMap<Box<str>, Node>,
}

/// One operator at one path.
#[derive(Clone, Debug)]
pub(super) enum Leaf {
    Modifier(Arc<dyn Modifier>),
    /// The path that the numbered `$rename` takes its value from: nothing else may touch it.
    RenameSource,
    /// The path that the numbered `$rename` brings its value to.
    RenameTarget(usize),
}

/// A field's name in the order of updates: array positions by number, all else by bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FieldName(Box<str>);

impl FieldName {
    pub(super) const fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the name begins like a number without a leading zero. Among such names the longer one
    /// is the greater, which puts numbers in their order; other names begin with other bytes than
    /// these, or with a zero, so that the order is total.
    fn is_like_number(&self) -> bool {
        match self.0.as_bytes() {
            [b'0', _, ..] | [] => false,
            [first, ..] => first.is_ascii_digit(),
        }
    }
}

impl Ord for FieldName {
    fn cmp(&self, other: &Self) -> Ordering {
        if self.is_like_number() && other.is_like_number() {
            self.0
                .len()
                .cmp(&other.0.len())
                .then_with(|| self.0.cmp(&other.0))
        } else {
            self.0.cmp(&other.0)
        }
    }
}

impl PartialOrd for FieldName {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl ObjectNode {
    /// Adds an operator at `path`.
    ///
    /// # Errors
    /// `ConflictingUpdateOperators` if another operator is at the same path, above or below it.
    pub(super) fn insert(&mut self, path: &UpdatePath<'_>, leaf: Leaf) -> Result<()> {
        self.insert_below(path, 0, leaf)
    }

    fn insert_below(&mut self, path: &UpdatePath<'_>, depth: usize, leaf: Leaf) -> Result<()> {
        match path.components()[depth] {
            Component::Field(name) => match self.children.entry(FieldName(name.into())) {
                Entry::Vacant(entry) => {
                    entry.insert(Node::chain(path, depth, leaf));
                    Ok(())
                }
                Entry::Occupied(entry) => entry.into_mut().insert_into(path, depth, leaf),
            },
            Component::Matched => match &mut self.matched {
                Some(node) => node.insert_into(path, depth, leaf),
                vacant => {
                    *vacant = Some(Box::new(Node::chain(path, depth, leaf)));
                    Ok(())
                }
            },
            // The node above would be an array node: its kind follows from this component.
            Component::Filtered(_) => Err(conflict(path, depth)),
        }
    }
}

impl ArrayNode {
    fn insert_below(&mut self, path: &UpdatePath<'_>, depth: usize, leaf: Leaf) -> Result<()> {
        let Component::Filtered(name) = path.components()[depth] else {
            return Err(conflict(path, depth));
        };
        match self.children.entry(name.into()) {
            Entry::Vacant(entry) => {
                entry.insert(Node::chain(path, depth, leaf));
                Ok(())
            }
            Entry::Occupied(entry) => entry.into_mut().insert_into(path, depth, leaf),
        }
    }
}

impl Node {
    /// The node for the component at `depth` of a path that nothing shares from there on.
    fn chain(path: &UpdatePath<'_>, depth: usize, leaf: Leaf) -> Self {
        let components = path.components();
        components[depth + 1..]
            .iter()
            .rev()
            .fold(Self::Leaf(leaf), |below, component| match component {
                Component::Field(name) => Self::Object(ObjectNode {
                    children: BTreeMap::from([(FieldName((*name).into()), below)]),
                    matched: None,
                }),
                Component::Matched => Self::Object(ObjectNode {
                    children: BTreeMap::new(),
                    matched: Some(Box::new(below)),
                }),
                Component::Filtered(name) => Self::Array(ArrayNode {
                    children: BTreeMap::from([((*name).into(), below)]),
                }),
            })
    }

    /// Adds the rest of a path to this node, which is at the path's component `depth`.
    fn insert_into(&mut self, path: &UpdatePath<'_>, depth: usize, leaf: Leaf) -> Result<()> {
        match (self, path.components().get(depth + 1)) {
            (Self::Object(node), Some(Component::Field(_) | Component::Matched)) => {
                node.insert_below(path, depth + 1, leaf)
            }
            (Self::Array(node), Some(Component::Filtered(_))) => {
                node.insert_below(path, depth + 1, leaf)
            }
            _ => Err(conflict(path, depth)),
        }
    }
}

fn conflict(path: &UpdatePath<'_>, depth: usize) -> Error {
    Error::new(
        ErrorCode::ConflictingUpdateOperators,
        format!(
            "Updating the path '{}' would create a conflict at '{}'",
            path.text(),
            path.prefix(depth + 1)
        ),
    )
}

/// Both of two changes that turn out to concern the same place of a document, which is at `place`.
///
/// # Errors
/// `ConflictingUpdateOperators` if they cannot both be made.
pub(super) fn merge(left: &Node, right: &Node, place: &str) -> Result<Node> {
    match (left, right) {
        (Node::Object(left), Node::Object(right)) => {
            let mut children = left.children.clone();
            for (name, node) in &right.children {
                merge_child(
                    &mut children,
                    name,
                    node,
                    &format!("{place}.{}", name.as_str()),
                )?;
            }
            let matched = match (&left.matched, &right.matched) {
                (Some(left), Some(right)) => {
                    Some(Box::new(merge(left, right, &format!("{place}.$"))?))
                }
                (left, right) => left.as_ref().or(right.as_ref()).cloned(),
            };
            Ok(Node::Object(ObjectNode { children, matched }))
        }
        (Node::Array(left), Node::Array(right)) => {
            let mut children = left.children.clone();
            for (name, node) in &right.children {
                merge_child(&mut children, name, node, &format!("{place}.$[{name}]"))?;
            }
            Ok(Node::Array(ArrayNode { children }))
        }
        _ => Err(Error::new(
            ErrorCode::ConflictingUpdateOperators,
            format!("Update created a conflict at '{place}'"),
        )),
    }
}

fn merge_child<K: Ord + Clone>(
    children: &mut BTreeMap<K, Node>,
    name: &K,
    node: &Node,
    place: &str,
) -> Result<()> {
    match children.entry(name.clone()) {
        Entry::Vacant(entry) => {
            entry.insert(node.clone());
        }
        Entry::Occupied(mut entry) => {
            let both = merge(entry.get(), node, place)?;
            entry.insert(both);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn insert(root: &mut ObjectNode, path: &str) -> Result<()> {
        root.insert(&UpdatePath::parse(path).unwrap(), Leaf::RenameSource)
    }

    #[test]
    fn conflicting_paths_name_where_they_meet() {
        for (first, second, at) in [
            ("a", "a", "a"),
            ("a", "a.b", "a"),
            ("a.b", "a", "a"),
            ("a.b.c", "a.b.c.d", "a.b.c"),
            ("a.$.b", "a.$", "a.$"),
            ("a.$[]", "a.0", "a"),
            ("a.0", "a.$[]", "a"),
            ("a.$[x].b", "a.$[x]", "a.$[x]"),
            ("a.$[i]", "a.$", "a"),
        ] {
            let mut root = ObjectNode::default();
            insert(&mut root, first).unwrap();
            let error = insert(&mut root, second).unwrap_err();
            assert_eq!(error.code(), ErrorCode::ConflictingUpdateOperators);
            assert_eq!(
                error.message(),
                format!("Updating the path '{second}' would create a conflict at '{at}'")
            );
        }
    }

    #[test]
    fn paths_beside_each_other_are_fine() {
        let mut root = ObjectNode::default();
        for path in ["a.b", "a.c", "a.$", "d.$[].x", "d.$[].y", "d.$[q].x", "e"] {
            insert(&mut root, path).unwrap();
        }
        assert_eq!(root.children.len(), 3);
    }

    #[test]
    fn numbers_are_in_their_order() {
        let mut names: Vec<FieldName> =
            ["b", "10", "a", "9", "2", "01", "0", "a10", "a9", "1a", ""]
                .map(|name| FieldName(name.into()))
                .into();
        names.sort();
        let names: Vec<&str> = names.iter().map(FieldName::as_str).collect();
        assert_eq!(
            names,
            ["", "0", "01", "2", "9", "10", "1a", "a", "a10", "a9", "b"]
        );
    }

    #[test]
    fn merged_changes_may_not_meet() {
        let node = |paths: &[&str]| {
            let mut root = ObjectNode::default();
            for path in paths {
                insert(&mut root, path).unwrap();
            }
            Node::Object(root)
        };
        assert!(merge(&node(&["a.b", "c"]), &node(&["a.d", "e"]), "x").is_ok());
        let error = merge(&node(&["a.b"]), &node(&["a.b.c"]), "x.0").unwrap_err();
        assert_eq!(error.message(), "Update created a conflict at 'x.0.a.b'");
    }
}
