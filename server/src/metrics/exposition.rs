//! All counters as Prometheus text (exposition format 0.0.4).

use std::fmt::Write;
use std::sync::atomic::Ordering;

use millrace_command::OperationKind;

use super::Statistics;
use super::histogram::BUCKET_ENDS_US;

/// Writes the name, kind and meaning of a metric.
fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

/// Writes a metric without labels.
fn single(out: &mut String, name: &str, kind: &str, help: &str, value: u64) {
    head(out, name, kind, help);
    let _ = writeln!(out, "{name} {value}");
}

/// Appends every metric of the server in the Prometheus text format.
pub fn write_metrics(statistics: &dyn Statistics, out: &mut String) {
    write_commands(statistics, out);
    write_errors(statistics, out);
    write_network(statistics, out);
    write_documents(statistics, out);
    write_memory(statistics, out);
    write_engine(statistics, out);
}

fn write_commands(statistics: &dyn Statistics, out: &mut String) {
    let mut commands = statistics.commands();
    commands.retain(|(_, command)| command.total.load(Ordering::Relaxed) > 0);
    head(
        out,
        "millrace_commands_failed_total",
        "counter",
        "Commands answered with an error.",
    );
    for (name, command) in &commands {
        let failed = command.failed.load(Ordering::Relaxed);
        let _ = writeln!(
            out,
            "millrace_commands_failed_total{{command=\"{name}\"}} {failed}"
        );
    }
    let metric = "millrace_command_duration_seconds";
    head(
        out,
        metric,
        "histogram",
        "From the last byte of a command to its reply.",
    );
    for (name, command) in &commands {
        let (counts, total) = command.latency.cumulative();
        for (end_us, count) in BUCKET_ENDS_US.iter().zip(counts) {
            let end = seconds(*end_us);
            let _ = writeln!(
                out,
                "{metric}_bucket{{command=\"{name}\",le=\"{end}\"}} {count}"
            );
        }
        let sum = seconds(command.latency.sum_us());
        let _ = writeln!(
            out,
            "{metric}_bucket{{command=\"{name}\",le=\"+Inf\"}} {total}\n\
             {metric}_sum{{command=\"{name}\"}} {sum}\n\
             {metric}_count{{command=\"{name}\"}} {total}"
        );
    }
    head(
        out,
        "millrace_operations_total",
        "counter",
        "Operations by kind, as opcounters.",
    );
    for kind in OperationKind::ALL {
        let count = statistics.metrics().operations(kind);
        let _ = writeln!(
            out,
            "millrace_operations_total{{kind=\"{}\"}} {count}",
            kind.name()
        );
    }
}

/// Microseconds as seconds with six digits, without a detour through floating point.
fn seconds(us: u64) -> String {
    format!("{}.{:06}", us / 1_000_000, us % 1_000_000)
}

fn write_errors(statistics: &dyn Statistics, out: &mut String) {
    head(
        out,
        "millrace_errors_total",
        "counter",
        "Errors sent, by code.",
    );
    for (code, count) in statistics.metrics().errors() {
        let _ = writeln!(out, "millrace_errors_total{{code=\"{code}\"}} {count}");
    }
}

fn write_network(statistics: &dyn Statistics, out: &mut String) {
    let counters = statistics.network();
    let open = u64::try_from(counters.open.load(Ordering::Relaxed)).unwrap_or(u64::MAX);
    single(
        out,
        "millrace_connections",
        "gauge",
        "Open connections.",
        open,
    );
    for (name, help, counter) in [
        (
            "connections_accepted",
            "Connections accepted.",
            &counters.accepted,
        ),
        (
            "connections_rejected",
            "Connections refused: too many.",
            &counters.rejected,
        ),
        (
            "connections_timed_out",
            "Connections closed: too slow.",
            &counters.timed_out,
        ),
        ("requests", "Messages received.", &counters.requests),
        (
            "requests_offloaded",
            "Requests served on threads of the blocking pool.",
            &counters.offloaded,
        ),
        (
            "network_received_bytes",
            "Bytes received.",
            &counters.bytes_in,
        ),
        ("network_sent_bytes", "Bytes sent.", &counters.bytes_out),
    ] {
        let name = format!("millrace_{name}_total");
        single(out, &name, "counter", help, counter.load(Ordering::Relaxed));
    }
}

fn write_documents(statistics: &dyn Statistics, out: &mut String) {
    let documents = statistics.metrics().documents();
    head(
        out,
        "millrace_documents_total",
        "counter",
        "Documents by what was done to them.",
    );
    for (action, count) in [
        ("returned", documents.returned),
        ("inserted", documents.inserted),
        ("updated", documents.updated),
        ("deleted", documents.deleted),
        ("expired", statistics.expired_documents()),
    ] {
        let _ = writeln!(
            out,
            "millrace_documents_total{{action=\"{action}\"}} {count}"
        );
    }
    let cursors = statistics.cursors();
    single(
        out,
        "millrace_cursors",
        "gauge",
        "Open cursors.",
        cursors.open,
    );
    single(
        out,
        "millrace_cursors_opened_total",
        "counter",
        "Cursors opened.",
        cursors.opened_total,
    );
    let timed_out = cursors.timed_out_total;
    single(
        out,
        "millrace_cursors_timed_out_total",
        "counter",
        "Cursors closed idle.",
        timed_out,
    );
    single(
        out,
        "millrace_sessions",
        "gauge",
        "Logical sessions.",
        statistics.sessions(),
    );
}

fn write_memory(statistics: &dyn Statistics, out: &mut String) {
    let gauges = statistics.memory();
    head(
        out,
        "millrace_memory_used_bytes",
        "gauge",
        "Memory taken from each share of the budget.",
    );
    for gauge in &gauges {
        let (share, used) = (gauge.share.name(), gauge.used);
        let _ = writeln!(
            out,
            "millrace_memory_used_bytes{{share=\"{share}\"}} {used}"
        );
    }
    head(
        out,
        "millrace_memory_limit_bytes",
        "gauge",
        "The limit of each share.",
    );
    for gauge in &gauges {
        let (share, limit) = (gauge.share.name(), gauge.limit);
        let _ = writeln!(
            out,
            "millrace_memory_limit_bytes{{share=\"{share}\"}} {limit}"
        );
    }
    head(
        out,
        "millrace_memory_refused_total",
        "counter",
        "Reservations refused, by share.",
    );
    for gauge in &gauges {
        let (share, refused) = (gauge.share.name(), gauge.refused);
        let _ = writeln!(
            out,
            "millrace_memory_refused_total{{share=\"{share}\"}} {refused}"
        );
    }
    let (resident, _) = crate::machine::process_memory_bytes();
    single(
        out,
        "millrace_resident_bytes",
        "gauge",
        "Resident memory of the process.",
        resident,
    );
}

fn write_engine(statistics: &dyn Statistics, out: &mut String) {
    let journal = statistics.journal();
    single(
        out,
        "millrace_journal_syncs_total",
        "counter",
        "Syncs of the journal.",
        journal.syncs,
    );
    let parked = journal.parked;
    let help = "Replies that waited for a sync.";
    single(
        out,
        "millrace_journal_parked_replies_total",
        "counter",
        help,
        parked,
    );
    for (name, value) in statistics.engine() {
        let kind = if name.ends_with("_total") {
            "counter"
        } else {
            "gauge"
        };
        let help = "A statistic of the storage engine.";
        single(out, &format!("millrace_engine_{name}"), kind, help, value);
    }
}
