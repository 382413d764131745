//! `millrace sockets status`.

use std::io::Write;

use millrace_stream::control::Message;
use serde_json::Value;

use super::report::{ask, list, name, number, say};
use super::{ToolError, StatusOptions};
use crate::terminal::{Section, Side, Table};

pub(super) fn run(options: &StatusOptions, out: &mut dyn Write) -> Result<(), ToolError> {
    let status = ask(options.socket.as_deref(), Message::Status)?;
    if options.json {
        say(&format!("{status:#}\n"), out)
    } else {
        say(&text(&status), out)
    }
}

fn text(status: &Value) -> String {
    let (requests, totals) = (&status["requests"], &status["totals"]);
    let mut now = Section::new("now");
    now.row("processes", number(&status["processes"]));
    now.row("ends of connections", number(&totals["connections"]));
    let mut all = Section::new("since the monitor began");
    all.row("connected at user level", number(&totals["connects"]));
    all.row("asked of the monitor", number(&requests["connects"]));
    all.row("made by the monitor", number(&requests["connected"]));
    all.row("of these by planes", number(&requests["proxied"]));
    all.row("leases to make some", number(&requests["leases"]));
    all.row("left to the kernel", number(&requests["kernel"]));
    all.row("refused", number(&requests["refused"]));
    all.row("found a backlog full", number(&requests["waited"]));
    all.row("to other hosts", number(&requests["to_hosts"]));
    all.row("from other hosts", number(&requests["from_hosts"]));
    all.row("bytes sent", number(&totals["bytes_sent"]));
    all.row("bytes received", number(&totals["bytes_received"]));
    all.row("bells rung", number(&totals["bells"]));
    all.row("sleeps", number(&totals["sleeps"]));
    all.row("resets", number(&totals["resets"]));
    format!(
        "{}{}{}{}{}",
        now.text(),
        all.text(),
        planes(&status["planes"]),
        peers(list(status, "peers")),
        listeners(list(status, "listeners"))
    )
}

fn planes(planes: &Value) -> String {
    if planes.is_null() {
        return String::new();
    }
    let mut section = Section::new("planes");
    section.row("connections within this host", number(&planes["within"]));
    section.row("connections with other hosts", number(&planes["across"]));
    for (index, load) in list(planes, "connections").iter().enumerate() {
        section.row(format!("connections of plane {index}"), number(load));
    }
    for user in list(planes, "users") {
        let whose = format!("connections of user {}", user["user"]);
        section.row(whose, number(&user["connections"]));
    }
    section.row("most that are carried", number(&planes["connections_max"]));
    let most = number(&planes["connections_per_user_max"]);
    section.row("most of one user", most);
    section.row(
        "more than that, left to the kernel",
        number(&planes["turned_away"]),
    );
    section.row("connections that are over", number(&planes["ended"]));
    section.row("bytes of these, sent", number(&planes["ended_bytes_sent"]));
    let received = number(&planes["ended_bytes_received"]);
    section.row("bytes of these, received", received);
    section.text()
}

fn peers(peers: &[Value]) -> String {
    if peers.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&[
        ("HOST", Side::Left),
        ("STATE", Side::Left),
        ("PARTITIONS", Side::Right),
        ("WINDOW", Side::Left),
        ("WHY", Side::Left),
    ]);
    for peer in peers {
        let called = if peer["host"].is_string() {
            &peer["host"]
        } else {
            &peer["address"]
        };
        let is_alive = peer["alive"] == true;
        table.row(vec![
            name(called),
            if is_alive { "alive" } else { "away" }.to_owned(),
            number(&peer["partitions"]),
            name(&peer["window"]),
            why(peer),
        ]);
    }
    table.text()
}

/// Why a peer is away, or else which of its addresses it has not.
fn why(peer: &Value) -> String {
    let refused = list(peer, "refused_addresses").iter();
    let mut refused =
        refused.map(|one| format!("{}: {}", name(&one["address"]), name(&one["why"])));
    match (refused.next(), refused.count()) {
        (Some(first), 0) => first,
        (Some(first), more) => format!("{first}, and {more} more"),
        (None, _) => name(&peer["why"]),
    }
}

fn listeners(listeners: &[Value]) -> String {
    if listeners.is_empty() {
        return "nobody listens\n".to_owned();
    }
    let mut table = Table::new(&[
        ("LISTENER", Side::Left),
        ("PROCESS", Side::Right),
        ("PROGRAM", Side::Left),
        ("USER", Side::Right),
        ("BACKLOG", Side::Right),
        ("WAITING", Side::Right),
        ("CONNECTIONS", Side::Right),
    ]);
    for listener in listeners {
        table.row(vec![
            name(&listener["address"]),
            listener["process"].to_string(),
            name(&listener["program"]),
            listener["user"].to_string(),
            listener["backlog"].to_string(),
            listener["waiting"].to_string(),
            number(&listener["accepted"]),
        ]);
    }
    table.text()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_the_monitor_says_is_shown() {
        let status = json!({
            "processes": 2,
            "listeners": [{
                "address": "127.0.0.1:80", "process": 7, "program": "a\u{1b}b", "user": 33,
                "backlog": 511, "waiting": 0, "accepted": 12345
            }],
            "requests": {"connects": 3, "connected": 2, "waited": 0, "kernel": 1, "refused": 0},
            "totals": {"connections": 4, "bytes_sent": 1000, "bytes_received": 0}
        });
        let text = text(&status);
        assert!(text.contains("127.0.0.1:80"), "{text}");
        assert!(text.contains("a\\u{1b}b"), "{text}");
        assert!(text.contains("12,345"), "{text}");
    }

    #[test]
    fn addresses_that_a_peer_does_not_get_are_told() {
        let mut peer = json!({"host": "left", "alive": true, "refused_addresses": [
            {"address": "127.0.0.1", "why": "it means no other host, or many"}
        ]});
        assert_eq!(why(&peer), "127.0.0.1: it means no other host, or many");
        peer["refused_addresses"] = json!([]);
        assert_eq!(why(&peer), "-");
        assert_eq!(why(&json!({"why": "it is silent"})), "it is silent");
    }

    #[test]
    fn a_monitor_that_says_nothing_is_no_reason_to_fail() {
        assert!(text(&json!({})).ends_with("nobody listens\n"));
        assert!(text(&json!([1])).ends_with("nobody listens\n"));
    }
}
