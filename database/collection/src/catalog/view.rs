//! One view.

use bson::{Bson, Document, doc};
use millrace_value::{Error, ErrorCode, Result};

use crate::namespace::Namespace;

/// A view: the documents that a pipeline makes of those of a collection or of another view.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    /// The database and the name of the view.
    pub namespace: Namespace,
    /// The collection or view it reads, which need not exist.
    pub view_on: Namespace,
    /// The stages that the view's documents pass through, in order; may be empty.
    pub pipeline: Vec<Document>,
}

impl View {
    /// The options it was created with, as `listCollections` shows them.
    #[must_use]
    pub fn options(&self) -> Document {
        let pipeline: Vec<Bson> = self.pipeline.iter().cloned().map(Bson::Document).collect();
        doc! {"viewOn": self.view_on.collection(), "pipeline": pipeline}
    }

    /// The document that stands for the view in its database's `system.views`.
    pub(super) fn to_document(&self) -> Document {
        let mut document = doc! {"_id": self.namespace.as_str()};
        document.extend(self.options());
        document
    }

    /// The view that a document of `system.views` stands for.
    pub(super) fn from_document(document: &Document) -> Result<Self> {
        let invalid = || {
            Error::new(
                ErrorCode::InvalidViewDefinition,
                format!("the definition of a view cannot be read: {document}"),
            )
        };
        let namespace = Namespace::parse(document.get_str("_id").map_err(|_| invalid())?)?;
        let view_on = document.get_str("viewOn").map_err(|_| invalid())?;
        let view_on = Namespace::new(namespace.database(), view_on)?;
        let stages = document.get_array("pipeline").map_err(|_| invalid())?;
        let pipeline = stages
            .iter()
            .map(|stage| stage.as_document().cloned().ok_or_else(invalid))
            .collect::<Result<_>>()?;
        Ok(Self {
            namespace,
            view_on,
            pipeline,
        })
    }

    /// The collections and views that reading the view reads, itself excepted.
    pub(super) fn references(&self) -> Vec<Namespace> {
        let mut references = vec![self.view_on.clone()];
        let mut add = |database: Option<&str>, collection: &str| {
            let database = database.unwrap_or(self.namespace.database());
            // A name that is not valid refers to nothing.
            references.extend(Namespace::new(database, collection).ok());
        };
        for stage in &self.pipeline {
            add_references(stage, &mut add);
        }
        references
    }
}

/// Calls `add` with every collection that `stage` reads beside its input. The pipeline has been parsed,
/// which bounds how deep it is nested.
fn add_references(stage: &Document, add: &mut dyn FnMut(Option<&str>, &str)) {
    for (name, argument) in stage {
        match (name.as_str(), argument) {
            ("$lookup" | "$graphLookup", Bson::Document(fields)) => {
                match fields.get("from") {
                    Some(Bson::String(name)) => add(None, name),
                    Some(Bson::Document(from)) => {
                        if let (Ok(database), Ok(name)) = (from.get_str("db"), from.get_str("coll"))
                        {
                            add(Some(database), name);
                        }
                    }
                    _ => {}
                }
                add_nested(fields.get("pipeline"), add);
            }
            ("$unionWith", Bson::String(name)) => add(None, name),
            ("$unionWith", Bson::Document(fields)) => {
                if let Ok(name) = fields.get_str("coll") {
                    add(None, name);
                }
                add_nested(fields.get("pipeline"), add);
            }
            ("$facet", Bson::Document(facets)) => {
                for (_, pipeline) in facets {
                    add_nested(Some(pipeline), add);
                }
            }
            _ => {}
        }
    }
}

fn add_nested(pipeline: Option<&Bson>, add: &mut dyn FnMut(Option<&str>, &str)) {
    let stages = pipeline.and_then(Bson::as_array);
    for stage in stages.into_iter().flatten().filter_map(Bson::as_document) {
        add_references(stage, add);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(pipeline: Vec<Document>) -> View {
        View {
            namespace: Namespace::parse("d.v").expect("a namespace"),
            view_on: Namespace::parse("d.c").expect("a namespace"),
            pipeline,
        }
    }

    #[test]
    fn a_view_is_what_its_document_says() {
        let view = view(vec![doc! {"$match": {"a": 1}}, doc! {"$limit": 3}]);
        let read = View::from_document(&view.to_document());
        assert_eq!(read.ok(), Some(view));
        for wrong in [
            doc! {"viewOn": "c", "pipeline": []},
            doc! {"_id": "d.v", "pipeline": []},
            doc! {"_id": "d.v", "viewOn": "c"},
            doc! {"_id": "d.v", "viewOn": "c", "pipeline": [1]},
        ] {
            assert!(View::from_document(&wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn all_joined_collections_are_referred_to() {
        let view = view(vec![
            doc! {"$lookup": {"from": "l", "as": "x", "pipeline": [{"$unionWith": "u"}]}},
            doc! {"$lookup": {"from": {"db": "e", "coll": "f"}, "as": "x"}},
            doc! {"$facet": {"one": [{"$graphLookup": {"from": "g"}}], "two": []}},
            doc! {"$unionWith": {"coll": "w", "pipeline": [{"$lookup": {"from": "n"}}]}},
            doc! {"$match": {"from": "no"}},
        ]);
        let names: Vec<String> = view.references().iter().map(ToString::to_string).collect();
        assert_eq!(names, ["d.c", "d.l", "d.u", "e.f", "d.g", "d.w", "d.n"]);
    }
}
