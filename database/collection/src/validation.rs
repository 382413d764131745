//! Document validation: the `validator` option of a collection.

use bson::{Bson, Document, RawDocument, RawDocumentBuf, doc};
use millrace_expression::{EvaluationContext, Scope, Variables};
use millrace_matcher::Matcher;
use millrace_value::{Collation, Error, ErrorCode, Operation, Result};

/// The validator of a collection, ready to check documents.
#[derive(Debug)]
pub struct Validator {
    matcher: Matcher,
    specification: Document,
    /// Whether a document that fails is stored all the same, with a warning in the log.
    warn_only: bool,
    /// Whether updates of documents that were invalid before are let through.
    moderate: bool,
}

impl Validator {
    /// The validator that these options of a collection ask for, whose default collation is `collation`.
    ///
    /// # Errors
    /// When it cannot be parsed, as the matcher answers.
    pub fn from_options(options: &Document, collation: Collation) -> Result<Option<Self>> {
        let Ok(specification) = options.get_document("validator") else {
            return Ok(None);
        };
        let level = options.get_str("validationLevel").unwrap_or("strict");
        if specification.is_empty() || level == "off" {
            return Ok(None);
        }
        let raw = RawDocumentBuf::try_from(specification)?;
        Ok(Some(Self {
            matcher: Matcher::parse(&raw, &Scope::new(collation))?,
            specification: specification.clone(),
            warn_only: options
                .get_str("validationAction")
                .is_ok_and(|action| action == "warn"),
            moderate: level == "moderate",
        }))
    }

    /// Checks a document that is to be inserted.
    ///
    /// # Errors
    /// `DocumentValidationFailure`.
    pub(crate) fn check(&self, document: &RawDocument, operation: &Operation) -> Result<()> {
        let variables = Variables::new(operation);
        let context = EvaluationContext::new(operation, &variables, self.matcher.collation());
        if self.matcher.matches(document, &context)? {
            return Ok(());
        }
        let id = document
            .get("_id")?
            .map(Bson::try_from)
            .transpose()?
            .unwrap_or(Bson::Null);
        if self.warn_only {
            tracing::warn!(%id, "Document would fail validation");
            return Ok(());
        }
        let details = if self.specification.contains_key("$jsonSchema") {
            doc! {"operatorName": "$jsonSchema", "schemaRulesNotSatisfied": []}
        } else {
            doc! {
                "operatorName": self.specification.keys().next().cloned().unwrap_or_default(),
                "specifiedAs": self.specification.clone(),
                "reason": "document did not match the validator",
            }
        };
        Err(Error::new(
            ErrorCode::DocumentValidationFailure,
            "Document failed validation",
        )
        .with_details(doc! {"errInfo": {"failingDocumentId": id, "details": details}}))
    }

    /// Checks the new version of a document.
    ///
    /// # Errors
    /// As [`Validator::check`].
    pub fn check_update(
        &self,
        before: &RawDocument,
        after: &RawDocument,
        operation: &Operation,
    ) -> Result<()> {
        if self.moderate {
            let variables = Variables::new(operation);
            let context = EvaluationContext::new(operation, &variables, self.matcher.collation());
            if !self.matcher.matches(before, &context)? {
                return Ok(());
            }
        }
        self.check(after, operation)
    }
}
