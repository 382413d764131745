//! The line on a terminal that tells how far a run is.

use std::io::{self, Write};

use super::{Limits, Progress};
use crate::terminal::quantity::grouped;

/// Characters of the bar.
const BAR: usize = 30;

/// The line, and what was there when it was drawn last.
#[derive(Debug)]
pub(super) struct ProgressLine {
    limits: Limits,
    block_size: usize,
    last: Progress,
}

impl ProgressLine {
    pub(super) const fn new(limits: Limits, block_size: usize) -> Self {
        Self {
            limits,
            block_size,
            last: Progress {
                elapsed: std::time::Duration::ZERO,
                operations: 0,
                under_way: 0,
            },
        }
    }

    pub(super) fn draw(&mut self, progress: Progress) {
        let line = self.line(progress);
        // A terminal that is gone needs no answer.
        let _ = write!(io::stderr(), "\r{line}\x1b[K");
    }

    pub(super) fn clear(&self) {
        let _ = write!(io::stderr(), "\r\x1b[K");
    }

    /// The line; its rates are those since the last one.
    fn line(&mut self, progress: Progress) -> String {
        let permille = self.permille(progress);
        let filled = BAR * permille / 1000;
        let nanoseconds = (progress.elapsed.saturating_sub(self.last.elapsed)).as_nanos();
        let operations = progress.operations.saturating_sub(self.last.operations);
        let rate = u128::from(operations) * 1_000_000_000 / nanoseconds.max(1);
        self.last = progress;
        let news = if permille == 1000 && operations == 0 {
            // A device that does not answer holds up the end until its time is over.
            let under_way = grouped(progress.under_way.into());
            format!("waiting for {under_way} operations that were sent")
        } else {
            let bytes = rate * self.block_size as u128;
            let (rate, bytes) = (grouped(rate), grouped(bytes / 1_000_000));
            format!("{rate} operations/s, {bytes} MB/s")
        };
        format!(
            "  [{}{}] {:3} %  {news}",
            "#".repeat(filled),
            "-".repeat(BAR - filled),
            permille / 10,
        )
    }

    /// How much of the run is over, of 1000: whichever limit is nearer.
    fn permille(&self, progress: Progress) -> usize {
        let share = |part: u128, whole: u128| part.saturating_mul(1000) / whole.max(1);
        let time = self.limits.time;
        let time = time.map_or(0, |time| {
            share(progress.elapsed.as_nanos(), time.as_nanos())
        });
        let operations = self.limits.operations;
        let operations = operations.map_or(0, |all| share(progress.operations.into(), all.into()));
        usize::try_from(time.max(operations).min(1000)).expect("1000 at most")
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_nearer_limit_moves_the_bar_and_rates_are_of_the_last_while() {
        let limits = Limits {
            time: Some(Duration::from_secs(10)),
            operations: Some(1_000_000),
        };
        let mut line = ProgressLine::new(limits, 4096);
        let at = |seconds, operations| Progress {
            elapsed: Duration::from_secs(seconds),
            operations,
            under_way: 32,
        };
        assert_eq!(
            line.line(at(1, 500_000)),
            format!(
                "  [{}{}]  50 %  500,000 operations/s, 2,048 MB/s",
                "#".repeat(15),
                "-".repeat(15)
            )
        );
        assert_eq!(
            line.line(at(20, 500_000)),
            format!(
                "  [{}] 100 %  waiting for 32 operations that were sent",
                "#".repeat(30)
            )
        );
    }
}
