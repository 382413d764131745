//! The log: one JSON object a line, in the shape of mongod's, made from `tracing` events.
//!
//! The event's target is the component, its field `id` the number of the message, its message the
//! text; all other fields become `attr`. The thread's name is the context.

use std::collections::VecDeque;
use std::fmt::{self, Write as _};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bson::DateTime;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

/// How many of the last lines `getLog` can return.
const LINES_KEPT: usize = 1024;

/// How long one logged value may be, in bytes: clients choose some of them.
const VALUE_LEN_MAX: usize = 10 * 1024;

/// The last lines of the log.
#[derive(Debug, Default)]
pub struct RecentLines {
    lines: Mutex<Recent>,
}

#[derive(Debug, Default)]
struct Recent {
    last: VecDeque<String>,
    total: u64,
}

impl RecentLines {
    fn push(&self, line: &str) {
        let mut recent = self.lock();
        if recent.last.len() == LINES_KEPT {
            recent.last.pop_front();
        }
        recent.last.push_back(line.to_owned());
        recent.total += 1;
    }

    /// The last lines, the oldest first, and how many there were in all.
    #[must_use]
    pub fn snapshot(&self) -> (Vec<String>, u64) {
        let recent = self.lock();
        (recent.last.iter().cloned().collect(), recent.total)
    }

    fn lock(&self) -> MutexGuard<'_, Recent> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A subscriber that writes each event as one line of JSON.
pub struct JsonLog {
    out: Mutex<Box<dyn Write + Send>>,
    recent: Arc<RecentLines>,
    level_max: Level,
}

impl fmt::Debug for JsonLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JsonLog")
            .field("level_max", &self.level_max)
            .finish_non_exhaustive()
    }
}

impl JsonLog {
    /// A log to the standard output, or appended to the file at `path`.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn open(path: Option<&Path>, recent: Arc<RecentLines>) -> io::Result<Self> {
        let out: Box<dyn Write + Send> = match path {
            None => Box::new(io::stdout()),
            Some(path) => Box::new(open_file(path)?),
        };
        Ok(Self {
            out: Mutex::new(out),
            recent,
            level_max: Level::INFO,
        })
    }
}

fn open_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

impl<S: Subscriber> Layer<S> for JsonLog {
    fn enabled(&self, metadata: &tracing::Metadata<'_>, _: Context<'_, S>) -> bool {
        *metadata.level() <= self.level_max
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let line = format_event(event);
        self.recent.push(&line);
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        // There is nowhere to report that the log cannot be written.
        let _ = writeln!(out, "{line}").and_then(|()| out.flush());
    }
}

fn format_event(event: &Event<'_>) -> String {
    let mut fields = Fields::default();
    event.record(&mut fields);
    let severity = match *event.metadata().level() {
        Level::ERROR => "E",
        Level::WARN => "W",
        Level::INFO => "I",
        Level::DEBUG => "D1",
        Level::TRACE => "D2",
    };
    let target = event.metadata().target();
    // Libraries log under their module's path, which is no component of ours.
    let component = if target.contains("::") || target.starts_with("millrace") {
        "-"
    } else {
        target
    };
    let time = DateTime::now().try_to_rfc3339_string().unwrap_or_default();
    let thread = std::thread::current();
    let context = thread.name().unwrap_or("-").to_owned();

    let mut line = String::with_capacity(256);
    let _ = write!(
        line,
        "{{\"t\":{{\"$date\":\"{time}\"}},\"s\":\"{severity}\",\"c\":\"{component}\",\"id\":{},\
         \"ctx\":",
        fields.id
    );
    push_json_string(&mut line, &context);
    line.push_str(",\"msg\":");
    push_json_string(&mut line, &fields.message);
    if !fields.attributes.is_empty() {
        line.push_str(",\"attr\":{");
        line.push_str(&fields.attributes);
        line.push('}');
    }
    line.push('}');
    line
}

#[derive(Default)]
struct Fields {
    id: u64,
    message: String,
    attributes: String,
}

impl Fields {
    fn name(&mut self, field: &Field) {
        if !self.attributes.is_empty() {
            self.attributes.push(',');
        }
        push_json_string(&mut self.attributes, field.name());
        self.attributes.push(':');
    }
}

impl Visit for Fields {
    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == "id" {
            self.id = value;
        } else {
            self.name(field);
            let _ = write!(self.attributes, "{value}");
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.name(field);
        let _ = write!(self.attributes, "{value}");
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.name(field);
        let _ = write!(self.attributes, "{value}");
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            value.clone_into(&mut self.message);
        } else {
            self.name(field);
            push_json_string(&mut self.attributes, value);
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}

/// Appends a JSON string. Control characters are escaped, so that a line stays a line.
fn push_json_string(out: &mut String, text: &str) {
    out.push('"');
    let mut end = text.len().min(VALUE_LEN_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    for character in text[..end].chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            control if u32::from(control) < 0x20 => {
                let _ = write!(out, "\\u{:04x}", u32::from(control));
            }
            other => out.push(other),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    #[test]
    fn events_become_lines_in_the_shape_of_mongod() {
        let recent = Arc::new(RecentLines::default());
        let log = JsonLog {
            out: Mutex::new(Box::new(io::sink())),
            recent: Arc::clone(&recent),
            level_max: Level::INFO,
        };
        tracing::subscriber::with_default(tracing_subscriber::registry().with(log), || {
            tracing::info!(target: "NETWORK", id = 7_u32, remote = "a\"b\n", count = 3, "Hello");
            tracing::debug!(target: "NETWORK", "not logged");
        });
        let (lines, total) = recent.snapshot();
        assert_eq!(total, 1);
        let line = &lines[0];
        assert!(line.starts_with("{\"t\":{\"$date\":\"20"), "{line}");
        assert!(
            line.contains(",\"s\":\"I\",\"c\":\"NETWORK\",\"id\":7,\"ctx\":\""),
            "{line}"
        );
        let tail = ",\"msg\":\"Hello\",\"attr\":{\"remote\":\"a\\\"b\\n\",\"count\":3}}";
        assert!(line.ends_with(tail), "{line}");
    }
}
