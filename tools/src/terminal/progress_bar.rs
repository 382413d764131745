//! How far long work is, on a terminal.

use indicatif::{ProgressBar, ProgressStyle};

/// A line on the terminal that the standard error is, and nothing if it is none.
#[derive(Debug)]
pub(super) struct Bar(ProgressBar);

impl Bar {
    /// For work of so many bytes.
    pub(super) fn new(work: &'static str, bytes: u64) -> Self {
        let style = ProgressStyle::with_template(
            "{prefix}  [{bar:30}] {percent:>3} %  {decimal_bytes} of {decimal_total_bytes}, \
             {decimal_bytes_per_sec}, {eta} left  {wide_msg}",
        )
        .expect("a template of ours")
        .progress_chars("##-");
        let bar = ProgressBar::new(bytes).with_style(style).with_prefix(work);
        Self(bar)
    }

    /// So many bytes more are done.
    pub(super) fn advance(&self, bytes: u64) {
        self.0.inc(bytes);
    }

    /// So many bytes of so many are done.
    pub(super) fn set(&self, done: u64, all: u64) {
        self.0.set_length(all);
        self.0.set_position(done);
    }

    /// What is worked on just now.
    pub(super) fn show(&self, text: String) {
        self.0.set_message(text);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
