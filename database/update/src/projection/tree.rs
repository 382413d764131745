//! The fields that a projection names.

use millrace_value::Path;

use super::slice::Slice;

/// What becomes of a field.
#[derive(Clone, Debug)]
pub(super) enum Field {
    Include,
    Exclude,
    /// The field is a document, or an array of documents, to which this applies.
    Children(Tree),
    /// The field gets the value of this slot.
    Computed(usize),
    /// An array is cut by find's `$slice`; other values stay.
    Slice(Slice),
    /// An array is cut to the element that matched, unless one above it was.
    Positional,
}

/// The named fields of one level.
#[derive(Clone, Debug, Default)]
pub(super) struct Tree {
    /// In the order of the specification.
    fields: Vec<(Box<str>, Field)>,
    /// The [`tag`] of each field's name.
    tags: Vec<u16>,
    /// Indexes into `fields` by ascending name; empty while a linear search is as good.
    by_name: Vec<usize>,
    /// Whether the tree has a computed field at any depth.
    computes: bool,
    /// Whether the tree has a positional field at any depth.
    is_positional: bool,
}

/// What tells most names apart at a glance: length and last byte.
pub(super) fn tag(name: &[u8]) -> u16 {
    let [length, _] = u16::try_from(name.len()).unwrap_or(u16::MAX).to_le_bytes();
    u16::from_le_bytes([length, name.last().copied().unwrap_or(0)])
}

/// Up to this many fields are searched one after the other.
const LINEAR_SEARCH_MAX: usize = 12;

/// Why a field could not be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Collision {
    /// The path, or something below it, is there already.
    AtEnd,
    /// The path leads through a field that has no children.
    OnTheWay,
}

impl Tree {
    pub(super) fn fields(&self) -> &[(Box<str>, Field)] {
        &self.fields
    }

    pub(super) const fn computes(&self) -> bool {
        self.computes
    }

    pub(super) const fn is_positional(&self) -> bool {
        self.is_positional
    }

    /// The index of the field called `name`.
    pub(super) fn find(&self, name: &[u8]) -> Option<usize> {
        if self.by_name.is_empty() {
            let tag = tag(name);
            let mut likely = self
                .tags
                .iter()
                .enumerate()
                .filter(|(_, known)| **known == tag);
            let found = likely.find(|(index, _)| self.fields[*index].0.as_bytes() == name);
            return found.map(|(index, _)| index);
        }
        let place = self
            .by_name
            .binary_search_by(|&index| self.fields[index].0.as_bytes().cmp(name));
        place.ok().map(|place| self.by_name[place])
    }

    /// Adds a field at the end of `path`, which is not empty.
    pub(super) fn add(&mut self, path: &[Box<str>], field: Field) -> Result<(), Collision> {
        self.computes |= matches!(field, Field::Computed(_));
        self.is_positional |= matches!(field, Field::Positional);
        let (name, rest) = (&path[0], &path[1..]);
        match (self.find(name.as_bytes()), rest.is_empty()) {
            (Some(_), true) => Err(Collision::AtEnd),
            (Some(index), false) => match &mut self.fields[index].1 {
                Field::Children(tree) => tree.add(rest, field),
                _ => Err(Collision::OnTheWay),
            },
            (None, true) => {
                self.push(name.clone(), field);
                Ok(())
            }
            (None, false) => {
                let mut children = Self::default();
                children.add(rest, field)?;
                self.push(name.clone(), Field::Children(children));
                Ok(())
            }
        }
    }

    pub(super) fn remove(&mut self, name: &str) {
        self.fields.retain(|(known, _)| **known != *name);
        let names = self.fields.iter().map(|(known, _)| known);
        self.tags = names.map(|name| tag(name.as_bytes())).collect();
        self.index();
    }

    fn push(&mut self, name: Box<str>, field: Field) {
        self.tags.push(tag(name.as_bytes()));
        self.fields.push((name, field));
        if self.by_name.is_empty() {
            if self.fields.len() > LINEAR_SEARCH_MAX {
                self.index();
            }
            return;
        }
        let last = self.fields.len() - 1;
        let name = &self.fields[last].0;
        let place = self
            .by_name
            .partition_point(|&index| self.fields[index].0 < *name);
        self.by_name.insert(place, last);
    }

    fn index(&mut self) {
        self.by_name.clear();
        if self.fields.len() > LINEAR_SEARCH_MAX {
            self.by_name.extend(0..self.fields.len());
            self.by_name
                .sort_by(|&a, &b| self.fields[a].0.cmp(&self.fields[b].0));
        }
    }

    /// Collects the paths of included fields. `prefix` is the path to this tree.
    pub(super) fn collect_included(&self, prefix: &mut Vec<Box<str>>, paths: &mut Vec<Path>) {
        for (name, field) in &self.fields {
            prefix.push(name.clone());
            match field {
                Field::Include | Field::Slice(_) | Field::Positional => {
                    paths.extend(Path::from_components(prefix.iter().cloned()));
                }
                Field::Children(tree) => tree.collect_included(prefix, paths),
                Field::Exclude | Field::Computed(_) => {}
            }
            prefix.pop();
        }
    }
}
