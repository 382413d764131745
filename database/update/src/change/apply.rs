//! Making a change to a document.

use bson::{Bson, Document};

use super::{ArrayDifference, Difference, DocumentDifference};

impl DocumentDifference {
    /// Changes `document`.
    pub(super) fn apply(&self, document: &mut Document) {
        self.remove(document);
        for (name, value) in self.updated.iter().chain(&self.inserted) {
            // A field that is there keeps its place; this is what makes a second time harmless.
            document.insert(name.clone(), value.clone());
        }
        for (name, difference) in &self.inside {
            if let Some(value) = document.get_mut(name) {
                difference.apply(value);
            }
        }
    }

    /// Removes fields. Taking many out of a map one by one would move the rest each time.
    fn remove(&self, document: &mut Document) {
        match self.removed.as_slice() {
            [] => {}
            [name] => {
                document.remove(name);
            }
            names => {
                let names: std::collections::HashSet<&String> = names.iter().collect();
                let fields = std::mem::take(document).into_iter();
                document.extend(fields.filter(|(name, _)| !names.contains(name)));
            }
        }
    }
}

impl ArrayDifference {
    fn apply(&self, array: &mut Vec<Bson>) {
        if let Some(length) = self.truncated {
            array.truncate(length);
        }
        for (index, value) in &self.updated {
            if array.len() <= *index {
                array.resize(index + 1, Bson::Null);
            }
            array[*index] = value.clone();
        }
        for (index, difference) in &self.inside {
            if let Some(value) = array.get_mut(*index) {
                difference.apply(value);
            }
        }
    }
}

impl Difference {
    fn apply(&self, value: &mut Bson) {
        match (self, value) {
            (Self::Document(difference), Bson::Document(document)) => difference.apply(document),
            (Self::Array(difference), Bson::Array(array)) => difference.apply(array),
            // The value is of another kind by now; a later change of the log made it so.
            _ => {}
        }
    }
}
