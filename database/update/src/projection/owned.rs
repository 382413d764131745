//! Projection of documents that are trees. It does what `raw` does on bytes; a property test holds
//! them together.

use bson::{Bson, Document};
use millrace_value::Result;

use super::{Computed, Field, Position, Shape, Tree};

/// The projection of `document`.
pub(super) fn apply(
    shape: &Shape,
    document: Document,
    computed: Computed,
    position: Position,
) -> Result<Document> {
    let mut builder = Builder {
        keeps_others: shape.keeps_others,
        computed,
    };
    builder.document(&shape.tree, document, position)
}

struct Builder {
    keeps_others: bool,
    computed: Computed,
}

impl Builder {
    fn document(
        &mut self,
        tree: &Tree,
        document: Document,
        position: Position,
    ) -> Result<Document> {
        let mut output = Document::new();
        let mut seen = vec![false; tree.fields().len()];
        for (name, value) in document {
            let Some(index) = tree.find(name.as_bytes()) else {
                if self.keeps_others {
                    output.insert(name, value);
                }
                continue;
            };
            seen[index] = true;
            let value = match &tree.fields()[index].1 {
                Field::Include => Some(value),
                Field::Exclude => None,
                Field::Children(children) => self.children(children, value, position)?,
                Field::Computed(slot) if self.keeps_others => self.computed[*slot].clone(),
                Field::Computed(_) => {
                    seen[index] = false;
                    None
                }
                Field::Slice(slice) => Some(match value {
                    Bson::Array(items) => {
                        let range = slice.range(items.len());
                        let kept = items.into_iter().skip(range.start).take(range.len());
                        Bson::Array(kept.collect())
                    }
                    value => value,
                }),
                Field::Positional => Some(match value {
                    Bson::Array(mut items) => match position.enter_array(items.len())? {
                        Some(index) => Bson::Array(vec![items.swap_remove(index)]),
                        None => Bson::Array(items),
                    },
                    value => value,
                }),
            };
            if let Some(value) = value {
                output.insert(name, value);
            }
        }
        self.append_unseen(tree, &seen, &mut output);
        Ok(output)
    }

    fn append_unseen(&self, tree: &Tree, seen: &[bool], output: &mut Document) {
        for ((name, field), seen) in tree.fields().iter().zip(seen) {
            match field {
                _ if *seen => {}
                Field::Computed(slot) => {
                    if let Some(value) = &self.computed[*slot] {
                        output.insert(&**name, value.clone());
                    }
                }
                Field::Children(children) if children.computes() => {
                    output.insert(&**name, self.created(children));
                }
                _ => {}
            }
        }
    }

    /// A document that consists of computed fields only.
    fn created(&self, tree: &Tree) -> Document {
        let mut output = Document::new();
        self.append_unseen(tree, &vec![false; tree.fields().len()], &mut output);
        output
    }

    /// What `children` leave of a value.
    fn children(
        &mut self,
        children: &Tree,
        value: Bson,
        position: Position,
    ) -> Result<Option<Bson>> {
        match value {
            Bson::Document(document) => Ok(Some(Bson::Document(
                self.document(children, document, position)?,
            ))),
            Bson::Array(items) => Ok(Some(Bson::Array(self.array(children, items, position)?))),
            _ if children.computes() => Ok(Some(Bson::Document(self.created(children)))),
            value => Ok(self.keeps_others.then_some(value)),
        }
    }

    fn array(
        &mut self,
        children: &Tree,
        mut items: Vec<Bson>,
        mut position: Position,
    ) -> Result<Vec<Bson>> {
        if children.is_positional() && position != Position::Done {
            if let Some(index) = position.enter_array(items.len())? {
                items = vec![items.swap_remove(index)];
            }
            position = Position::Done;
        }
        let mut output = Vec::with_capacity(items.len());
        for item in items {
            output.extend(self.children(children, item, position)?);
        }
        Ok(output)
    }
}
