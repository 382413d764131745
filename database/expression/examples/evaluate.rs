//! Evaluates an aggregation expression on a document, without a database:
//!
//! ```text
//! $ cargo run -p millrace-expression --example evaluate -- '{"$multiply": ["$flow", 2]}' '{"flow": 1.5}'
//! 3.0
//! ```
//! Both arguments are Extended JSON, as `mongosh` prints it.

#![forbid(unsafe_code)]

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bson::{Bson, Document};
use millrace_expression::{EvaluationContext, Expression, Scope, Variables};
use millrace_value::operation::Limits;
use millrace_value::{Collation, Environment, Interrupt, Operation};

/// The machine's clocks; the only random number is the time, which is enough for one evaluation.
#[derive(Debug)]
struct Machine {
    started: Instant,
}

impl Environment for Machine {
    fn wall_clock_ms(&self) -> i64 {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    }

    fn monotonic(&self) -> Duration {
        self.started.elapsed()
    }

    fn random(&self) -> u64 {
        u64::from(self.started.elapsed().subsec_nanos()).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("evaluate: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [expression, document] = arguments.as_slice() else {
        return Err("give an expression and a document, both as Extended JSON".into());
    };
    let operand = Bson::try_from(serde_json::from_str::<serde_json::Value>(expression)?)?;
    let Bson::Document(document) =
        Bson::try_from(serde_json::from_str::<serde_json::Value>(document)?)?
    else {
        return Err("the second argument is not a document".into());
    };
    match evaluate(&operand, &document)? {
        Some(value) => println!("{}", value.into_relaxed_extjson()),
        None => println!("missing"),
    }
    Ok(())
}

/// The value of the expression `operand` on `document`; none if it is missing.
fn evaluate(operand: &Bson, document: &Document) -> Result<Option<Bson>, millrace_value::Error> {
    let environment = Machine {
        started: Instant::now(),
    };
    let operation = Operation::new(
        Arc::new(environment),
        Arc::new(Interrupt::default()),
        Limits::default(),
    );
    let variables = Variables::new(&operation);
    let context = EvaluationContext::new(&operation, &variables, Collation::SIMPLE);
    Expression::parse(operand, &Scope::new(Collation::SIMPLE))?.evaluate(document, &context)
}
