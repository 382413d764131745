//! The way from the root of a document to the place that is being changed.

use std::fmt;

/// One step of the way; steps of a walk lie on its stack and point to the step before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trail<'t> {
    parent: Option<&'t Trail<'t>>,
    step: Step<'t>,
    in_id: bool,
}

#[derive(Clone, Copy, Debug)]
enum Step<'t> {
    Field(&'t str),
    Element(usize),
}

impl<'t> Trail<'t> {
    /// The step to the field `name` (or the array element with this number) of what `parent` leads
    /// to, or of the document itself.
    pub(super) fn field(parent: Option<&'t Self>, name: &'t str) -> Self {
        let in_id = parent.map_or(name == "_id", |parent| parent.in_id);
        Self {
            parent,
            step: Step::Field(name),
            in_id,
        }
    }

    /// The step to an element of the array that this step leads to.
    pub(super) const fn element(&'t self, index: usize) -> Self {
        Self {
            parent: Some(self),
            step: Step::Element(index),
            in_id: self.in_id,
        }
    }

    /// Whether the way leads to `_id` or into it.
    pub(super) const fn is_in_id(&self) -> bool {
        self.in_id
    }

    /// The way to what holds this step's target; `None` if that is the document itself.
    pub(super) const fn parent(&self) -> Option<&'t Self> {
        self.parent
    }

    /// The name of the last step.
    pub(super) fn name(&self) -> String {
        match self.step {
            Step::Field(name) => name.to_owned(),
            Step::Element(index) => index.to_string(),
        }
    }
}

/// The dotted path.
impl fmt::Display for Trail<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            write!(formatter, "{parent}.")?;
        }
        match self.step {
            Step::Field(name) => formatter.write_str(name),
            Step::Element(index) => write!(formatter, "{index}"),
        }
    }
}
