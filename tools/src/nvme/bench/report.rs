//! What a run has shown.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};

use crate::nvme::{BlockSize, Pattern, WaitingChoice};
use crate::terminal::Report;
use crate::terminal::quantity::{duration, grouped};
use crate::terminal::{Side, Table};
use crate::terminal::{plot, ranges};

/// Range of recorded latencies: up to an hour, to three digits.
const LATENCY_MAX_NS: u64 = 3_600_000_000_000;
const DIGITS: u8 = 3;

/// The quantiles that are reported, with their names.
const QUANTILES: [(&str, f64); 5] = [
    ("p50", 0.5),
    ("p90", 0.9),
    ("p99", 0.99),
    ("p99.9", 0.999),
    ("p99.99", 0.9999),
];

/// An empty histogram of latencies in nanoseconds.
pub(super) fn latencies() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_MAX_NS, DIGITS).expect("the bounds are legal")
}

/// Workload of a run: its parameters, with all defaults resolved.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// Id of the namespace, from 1.
    pub namespace: u32,
    /// Order of the addresses: random or sequential.
    pub pattern: Pattern,
    /// Percentage of reads among the operations, 0 to 100; the others are writes.
    pub read_percent: u8,
    /// Bytes of each operation, 1 byte to 64 MiB, in whole logical blocks.
    pub block_size: BlockSize,
    /// Operations in flight on each thread.
    pub depth: usize,
    /// Number of threads, each with a queue pair of its own.
    pub threads: u16,
    /// Mode in which a thread waits for completions.
    pub waiting: WaitingChoice,
    /// Seed of the generator of random addresses and of the data written.
    pub seed: u64,
}

/// Result of a run: its workload, duration and latencies.
#[derive(Clone, Debug)]
pub struct BenchReport {
    /// Name of the device in messages: PCI address, or `vfio-user:` and the socket's path.
    pub name: String,
    /// Display title: device, model, serial number and namespace.
    pub title: String,
    /// Workload of the run, with the queue depth that the device allows.
    pub workload: Workload,
    /// Time from the start to the last completion.
    pub elapsed: Duration,
    /// Whether it was stopped before its end.
    pub was_stopped: bool,
    /// Whether the run ended because the kernel requested the device back.
    pub was_removed: bool,
    /// Latencies of all completed reads, in nanoseconds.
    pub reads: Histogram<u64>,
    /// Latencies of all completed writes, in nanoseconds.
    pub writes: Histogram<u64>,
}

impl BenchReport {
    pub(super) fn new(name: String, title: String, workload: Workload) -> Self {
        Self {
            name,
            title,
            workload,
            elapsed: Duration::ZERO,
            was_stopped: false,
            was_removed: false,
            reads: latencies(),
            writes: latencies(),
        }
    }

    pub(super) fn add(&mut self, reads: &Histogram<u64>, writes: &Histogram<u64>) {
        for (all, part) in [(&mut self.reads, reads), (&mut self.writes, writes)] {
            all.add(part).expect("all histograms have the same bounds");
        }
    }

    /// So many of them, each a second.
    fn rate(&self, count: u128) -> u128 {
        count * 1_000_000_000 / self.elapsed.as_nanos().max(1)
    }

    fn iops(&self, count: u64) -> u128 {
        self.rate(count.into())
    }

    fn bytes_per_second(&self, count: u64) -> u128 {
        self.rate(u128::from(count) * self.workload.block_size.0 as u128)
    }

    /// Reads and writes, as far as there were any.
    fn kinds(&self) -> impl Iterator<Item = (&'static str, &Histogram<u64>)> {
        let kinds = [("reads", &self.reads), ("writes", &self.writes)];
        kinds
            .into_iter()
            .filter(|(_, latencies)| !latencies.is_empty())
    }

    fn table(&self) -> String {
        let mut columns = vec![
            ("", Side::Left),
            ("COUNT", Side::Right),
            ("IOPS", Side::Right),
            ("MB/s", Side::Right),
            ("MIN", Side::Right),
            ("MEAN", Side::Right),
        ];
        columns.extend(QUANTILES.map(|(name, _)| (name, Side::Right)));
        columns.push(("MAX", Side::Right));
        let mut table = Table::new(&columns);
        for (name, latencies) in self.kinds() {
            let count = latencies.len();
            let mut cells = vec![
                name.to_owned(),
                grouped(count.into()),
                grouped(self.iops(count)),
                grouped(self.bytes_per_second(count) / 1_000_000),
                duration(latencies.min() as f64),
                duration(latencies.mean()),
            ];
            let quantiles = QUANTILES.iter();
            cells.extend(quantiles.map(|(_, q)| duration(latencies.value_at_quantile(*q) as f64)));
            cells.push(duration(latencies.max() as f64));
            table.row(cells);
        }
        table.text()
    }

    fn kind_json(&self, latencies: &Histogram<u64>) -> Value {
        if latencies.is_empty() {
            return Value::Null;
        }
        let mut nanoseconds = Map::new();
        nanoseconds.insert("min".to_owned(), latencies.min().into());
        nanoseconds.insert("mean".to_owned(), latencies.mean().into());
        for (name, quantile) in QUANTILES {
            let value = latencies.value_at_quantile(quantile);
            nanoseconds.insert(name.to_owned(), value.into());
        }
        nanoseconds.insert("max".to_owned(), latencies.max().into());
        let distribution = ranges(latencies).into_iter().map(
            |range| json!({ "first_ns": range.first, "last_ns": range.last, "count": range.count }),
        );
        let count = latencies.len();
        json!({
            "operations": count,
            "iops": crate::terminal::number(self.iops(count)),
            "bytes_per_second": crate::terminal::number(self.bytes_per_second(count)),
            "latency_ns": nanoseconds,
            "distribution": distribution.collect::<Vec<Value>>(),
        })
    }
}

impl Workload {
    fn text(&self) -> String {
        let pattern = match self.pattern {
            Pattern::Random => "random",
            Pattern::Sequential => "sequential",
        };
        let kind = match self.read_percent {
            100 => "reads".to_owned(),
            0 => "writes".to_owned(),
            percent => format!("reads ({percent} %) and writes"),
        };
        let waiting = match self.waiting {
            WaitingChoice::Poll => "polling",
            WaitingChoice::Interrupt => "by interrupts",
            WaitingChoice::Hybrid => "polling, then by interrupts",
        };
        let (size, depth, seed) = (self.block_size, self.depth, self.seed);
        let threads = match self.threads {
            1 => "1 thread".to_owned(),
            threads => format!("each of {threads} threads"),
        };
        format!(
            "{pattern} {kind} of {size}, {depth} in flight on {threads}, {waiting}, seed {seed}"
        )
    }

    fn json(&self) -> Value {
        json!({
            "pattern": match self.pattern {
                Pattern::Random => "random",
                Pattern::Sequential => "sequential",
            },
            "read_percent": self.read_percent,
            "block_bytes": self.block_size.0,
            "depth": self.depth,
            "threads": self.threads,
            "waiting": match self.waiting {
                WaitingChoice::Poll => "poll",
                WaitingChoice::Interrupt => "interrupt",
                WaitingChoice::Hybrid => "hybrid",
            },
            "seed": self.seed,
        })
    }
}

impl Report for BenchReport {
    fn text(&self) -> String {
        let (title, workload) = (&self.title, self.workload.text());
        let took = duration(self.elapsed.as_secs_f64() * 1e9);
        let stopped = match (self.was_removed, self.was_stopped) {
            (true, _) => ", stopped before its end: the kernel wants the device back",
            (false, true) => ", stopped before its end",
            (false, false) => "",
        };
        let mut text = format!("{title}\n{workload}; {took}{stopped}\n\n");
        if self.kinds().next().is_none() {
            text.push_str("Nothing was measured.\n");
            return text;
        }
        text.push_str(&self.table());
        for (name, latencies) in self.kinds() {
            text.push_str(&format!("\nlatency of {name}\n{}", plot(latencies)));
        }
        text
    }

    fn json(&self) -> Value {
        json!({
            "device": self.name,
            "namespace": self.workload.namespace,
            "workload": self.workload.json(),
            "seconds": self.elapsed.as_secs_f64(),
            "stopped": self.was_stopped,
            "removed": self.was_removed,
            "reads": self.kind_json(&self.reads),
            "writes": self.kind_json(&self.writes),
        })
    }
}
