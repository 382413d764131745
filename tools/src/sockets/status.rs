//! The command `millrace sockets status`.

use std::io::Write;

use millrace_stream::control::Message;
use serde_json::Value;

use super::StatusOptions;
use super::report::{ask, list, name, number, print};
use crate::ToolError;
use crate::terminal::{Section, Side, Table};

pub(super) fn run(options: &StatusOptions, out: &mut dyn Write) -> Result<(), ToolError> {
    let status = ask(options.socket.as_deref(), Message::Status)?;
    if options.json {
        print(&format!("{status:#}\n"), out)
    } else {
        print(&text(&status), out)
    }
}

fn text(status: &Value) -> String {
    let (requests, totals) = (&status["requests"], &status["totals"]);
    let mut now = Section::new("now");
    now.row("processes", number(&status["processes"]));
    now.row("ends of connections", number(&totals["connections"]));
    let mut all = Section::new("since the broker began");
    all.row("connected at user level", number(&totals["connects"]));
    all.row("requested of the broker", number(&requests["connects"]));
    all.row("made by the broker", number(&requests["connected"]));
    all.row("of these forwarded", number(&requests["forwarded"]));
    all.row("leases granted", number(&requests["leases"]));
    all.row("left to the kernel", number(&requests["kernel"]));
    all.row("refused", number(&requests["refused"]));
    all.row("found a backlog full", number(&requests["waited"]));
    all.row("to other hosts", number(&requests["to_hosts"]));
    all.row("from other hosts", number(&requests["from_hosts"]));
    all.row("bytes sent", number(&totals["bytes_sent"]));
    all.row("bytes received", number(&totals["bytes_received"]));
    all.row("notifications sent", number(&totals["notifications"]));
    all.row("sleeps", number(&totals["sleeps"]));
    all.row("resets", number(&totals["resets"]));
    format!(
        "{}{}{}{}{}",
        now.text(),
        all.text(),
        forwarders(&status["forwarders"]),
        peers(list(status, "peers")),
        listeners(list(status, "listeners"))
    )
}

fn forwarders(forwarders: &Value) -> String {
    if forwarders.is_null() {
        return String::new();
    }
    let mut section = Section::new("forwarders");
    section.row(
        "connections within this host",
        number(&forwarders["within"]),
    );
    section.row(
        "connections with other hosts",
        number(&forwarders["across"]),
    );
    for (index, load) in list(forwarders, "connections").iter().enumerate() {
        section.row(format!("connections of forwarder {index}"), number(load));
    }
    for user in list(forwarders, "users") {
        let rate_limit_key = format!("connections of user {}", user["user"]);
        section.row(rate_limit_key, number(&user["connections"]));
    }
    section.row(
        "limit of connections",
        number(&forwarders["connections_max"]),
    );
    let most = number(&forwarders["connections_per_user_max"]);
    section.row("limit of one user", most);
    section.row(
        "over a limit, left to the kernel",
        number(&forwarders["turned_away"]),
    );
    section.row("ended connections", number(&forwarders["ended"]));
    section.row(
        "bytes sent by ended ones",
        number(&forwarders["ended_bytes_sent"]),
    );
    let received = number(&forwarders["ended_bytes_received"]);
    section.row("bytes received by ended ones", received);
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

/// The reason for which a peer is away, or its refused addresses.
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
        return "no listeners\n".to_owned();
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
    fn what_the_broker_says_is_shown() {
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
    fn refused_addresses_of_a_peer_are_shown() {
        let mut peer = json!({"host": "left", "alive": true, "refused_addresses": [
            {"address": "127.0.0.1", "why": "the address belongs to this host"}
        ]});
        assert_eq!(why(&peer), "127.0.0.1: the address belongs to this host");
        peer["refused_addresses"] = json!([]);
        assert_eq!(why(&peer), "-");
        assert_eq!(why(&json!({"why": "timeout"})), "timeout");
    }

    #[test]
    fn a_broker_that_says_nothing_is_no_reason_to_fail() {
        assert!(text(&json!({})).ends_with("no listeners\n"));
        assert!(text(&json!([1])).ends_with("no listeners\n"));
    }
}
