//! Deciding whether a document satisfies a tree of conditions.

use std::cell::OnceCell;

use bson::{Document, RawDocument};
use millrace_expression::EvaluationContext;
use millrace_value::Result;

use super::Node;
use crate::MatchDetails;
use crate::walk::{Leaf, walk};

/// The matching of one document.
pub(crate) struct Evaluation<'a> {
    pub(crate) context: &'a EvaluationContext<'a>,
    root: &'a RawDocument,
    /// The root as a tree, made when the first `$expr` asks for it.
    decoded: OnceCell<Document>,
}

impl<'a> Evaluation<'a> {
    pub(crate) const fn new(root: &'a RawDocument, context: &'a EvaluationContext<'a>) -> Self {
        Self {
            context,
            root,
            decoded: OnceCell::new(),
        }
    }

    /// Whether `document`, which is the root or an element below it, satisfies `node`.
    pub(crate) fn node_matches(
        &self,
        node: &Node,
        document: &RawDocument,
        details: &mut MatchDetails,
    ) -> Result<bool> {
        let mut unused = MatchDetails::default();
        match node {
            Node::And(nodes) => {
                for node in nodes {
                    if !self.node_matches(node, document, details)? {
                        details.array_index = None;
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Node::Or(nodes) => self.any_matches(nodes, document),
            Node::Nor(nodes) => Ok(!self.any_matches(nodes, document)?),
            Node::Not(node) => Ok(!self.node_matches(node, document, &mut unused)?),
            Node::Path { path, predicate } => {
                let leaf = if predicate.takes_whole_array() {
                    Leaf::Whole
                } else {
                    Leaf::Elements
                };
                walk(document, path.components(), leaf, &mut |value, index| {
                    let matched = predicate.matches(value, self, details)?;
                    if matched && index.is_some() {
                        details.array_index = index;
                    }
                    Ok(matched)
                })
            }
            Node::Expression(expression) => {
                let value = expression.evaluate(self.decoded()?, self.context)?;
                Ok(value.is_some_and(|value| millrace_value::is_truthy(&value)))
            }
            Node::JsonSchema(schema) => schema.accepts_document(document),
            Node::SampleRate(rate) => Ok(self.draw() < *rate),
            Node::AlwaysTrue => Ok(true),
            Node::AlwaysFalse => Ok(false),
        }
    }

    fn any_matches(&self, nodes: &[Node], document: &RawDocument) -> Result<bool> {
        for node in nodes {
            if self.node_matches(node, document, &mut MatchDetails::default())? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn decoded(&self) -> Result<&Document> {
        if let Some(document) = self.decoded.get() {
            return Ok(document);
        }
        let document = Document::try_from(self.root)?;
        Ok(self.decoded.get_or_init(|| document))
    }

    /// A number drawn evenly from `0.0..1.0`.
    fn draw(&self) -> f64 {
        // 32 bits convert to a double without loss; more would not be noticed in a sample.
        let [a, b, c, d, ..] = self.context.operation.environment().random().to_le_bytes();
        f64::from(u32::from_le_bytes([a, b, c, d])) / (f64::from(u32::MAX) + 1.0)
    }
}
