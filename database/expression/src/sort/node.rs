//! One view on values, whether they are trees or bytes.

use bson::{Bson, Document, RawBsonRef, RawDocument};
use millrace_value::key::TypeBits;
use millrace_value::{Collation, Result};

/// A value inside a document that a sort key is taken from.
pub(super) trait Node<'a>: Copy {
    /// The value of field `name`, if this is a document that has it.
    fn field(self, name: &str) -> Result<Option<Self>>;
    /// Whether this is a document.
    fn is_document(self) -> bool;
    /// Whether this is an array.
    fn is_array(self) -> bool;
    /// The elements, if this is an array; nothing otherwise.
    fn elements(self) -> Result<Vec<Self>>;
    /// Appends the memory-comparable form of this value.
    fn encode(
        self,
        collation: Collation,
        out: &mut Vec<u8>,
        bits: &mut TypeBits,
        descending: bool,
    ) -> Result<()>;
}

/// A value of a tree. The whole document is not a [`Bson`], hence two cases.
#[derive(Clone, Copy, Debug)]
pub(super) enum TreeNode<'a> {
    Root(&'a Document),
    Value(&'a Bson),
}

impl<'a> Node<'a> for TreeNode<'a> {
    fn field(self, name: &str) -> Result<Option<Self>> {
        let document = match self {
            Self::Root(document) | Self::Value(Bson::Document(document)) => document,
            Self::Value(_) => return Ok(None),
        };
        Ok(document.get(name).map(Self::Value))
    }

    fn is_document(self) -> bool {
        matches!(self, Self::Root(_) | Self::Value(Bson::Document(_)))
    }

    fn is_array(self) -> bool {
        matches!(self, Self::Value(Bson::Array(_)))
    }

    fn elements(self) -> Result<Vec<Self>> {
        Ok(match self {
            Self::Value(Bson::Array(values)) => values.iter().map(Self::Value).collect(),
            _ => Vec::new(),
        })
    }

    fn encode(
        self,
        collation: Collation,
        out: &mut Vec<u8>,
        bits: &mut TypeBits,
        descending: bool,
    ) -> Result<()> {
        match self {
            // The walk starts with at least one component, so the root itself is never a value.
            Self::Root(_) => Ok(()),
            Self::Value(value) => collation.encode_key_bson(out, bits, value, descending),
        }
    }
}

/// A value in its bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawNode<'a>(RawBsonRef<'a>);

impl<'a> RawNode<'a> {
    pub(super) fn root(document: &'a RawDocument) -> Self {
        Self(RawBsonRef::Document(document))
    }
}

impl<'a> Node<'a> for RawNode<'a> {
    fn field(self, name: &str) -> Result<Option<Self>> {
        match self.0 {
            RawBsonRef::Document(document) => Ok(document.get(name)?.map(Self)),
            _ => Ok(None),
        }
    }

    fn is_document(self) -> bool {
        matches!(self.0, RawBsonRef::Document(_))
    }

    fn is_array(self) -> bool {
        matches!(self.0, RawBsonRef::Array(_))
    }

    fn elements(self) -> Result<Vec<Self>> {
        match self.0 {
            RawBsonRef::Array(array) => array.into_iter().map(|value| Ok(Self(value?))).collect(),
            _ => Ok(Vec::new()),
        }
    }

    fn encode(
        self,
        collation: Collation,
        out: &mut Vec<u8>,
        bits: &mut TypeBits,
        descending: bool,
    ) -> Result<()> {
        collation.encode_key(out, bits, self.0, descending)
    }
}
