//! What the libraries warn of, on the standard error.

use std::fmt::{self, Write as _};
use std::sync::atomic::{AtomicUsize, Ordering};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

/// A damaged volume can give as many warnings as it has files.
const LINES_MAX: usize = 10;

/// Prints the first few warnings and errors that are logged.
#[derive(Debug, Default)]
pub(super) struct Warnings {
    seen: AtomicUsize,
}

impl<S: Subscriber> Layer<S> for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>, _: Context<'_, S>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let seen = self.seen.fetch_add(1, Ordering::Relaxed);
        if seen < LINES_MAX {
            eprintln!("millrace: warning: {}", line(event));
        } else if seen == LINES_MAX {
            eprintln!("millrace: warning: and more; `millrace blobfs check` says all");
        }
    }
}

fn line(event: &Event<'_>) -> String {
    let mut fields = Fields::default();
    event.record(&mut fields);
    fields.message + &fields.others
}

#[derive(Default)]
struct Fields {
    message: String,
    others: String,
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string cannot fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.others, ", {name}: {value:?}"),
        };
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }
}
