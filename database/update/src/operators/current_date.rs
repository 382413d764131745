//! `$currentDate`.

use std::sync::Arc;

use bson::{Bson, DateTime};
use millrace_value::operation::current_timestamp;
use millrace_value::{Result, type_alias};

use super::{Context, Effect, Failure, Modifier, Operand, bad_value};
use crate::trail::Trail;

#[derive(Clone, Copy, Debug)]
enum CurrentDate {
    Date,
    Timestamp,
}

pub(super) fn parse(operand: &Operand<'_>) -> Result<Arc<dyn Modifier>> {
    let fields = match operand.value {
        Bson::Boolean(_) => return Ok(Arc::new(CurrentDate::Date)),
        Bson::Document(fields) => fields,
        other => {
            return Err(bad_value(format!(
                "{} is not valid type for $currentDate. Please use a boolean ('true') or a $type \
                 expression ({{$type: 'timestamp/date'}}).",
                type_alias(other)
            )));
        }
    };
    if let Some(name) = fields.keys().find(|name| *name != "$type") {
        return Err(bad_value(format!(
            "Unrecognized $currentDate option: {name}"
        )));
    }
    match fields.get("$type").and_then(Bson::as_str) {
        Some("date") => Ok(Arc::new(CurrentDate::Date)),
        Some("timestamp") => Ok(Arc::new(CurrentDate::Timestamp)),
        _ => Err(bad_value(
            "The '$type' string field is required to be 'date' or 'timestamp': {$currentDate: \
             {field : {$type: 'date'}}}",
        )),
    }
}

impl CurrentDate {
    fn now(self, context: &Context<'_>) -> Bson {
        let evaluation = context.evaluation;
        match self {
            Self::Date => {
                let now_ms = evaluation.operation.environment().wall_clock_ms();
                Bson::DateTime(DateTime::from_millis(now_ms))
            }
            Self::Timestamp => {
                Bson::Timestamp(current_timestamp(&**evaluation.operation.environment()))
            }
        }
    }
}

impl Modifier for CurrentDate {
    fn modify(
        &self,
        value: &mut Bson,
        _trail: &Trail<'_>,
        context: &Context<'_>,
    ) -> Result<Effect, Failure> {
        *value = self.now(context);
        Ok(Effect::Changed)
    }

    fn create(&self, context: &Context<'_>) -> Result<Option<Bson>, Failure> {
        Ok(Some(self.now(context)))
    }
}
