//! The command `millrace sockets top`.

use std::cmp::Reverse;
use std::io::Write;
use std::thread;
use std::time::Duration;

use millrace_stream::control::Message;
use serde_json::Value;

use super::TopOptions;
use super::report::{ask, list, name, number, print};
use crate::ToolError;
use crate::terminal::{Side, Table};

pub(super) fn run(options: &TopOptions, out: &mut dyn Write) -> Result<(), ToolError> {
    loop {
        let top = ask(options.socket.as_deref(), Message::Top)?;
        if options.json {
            print(&format!("{top:#}\n"), out)?;
        } else {
            print(&text(&top), out)?;
        }
        let Some(seconds) = options.every else {
            return Ok(());
        };
        thread::sleep(Duration::from_secs(seconds));
        print("\n", out)?;
    }
}

fn text(top: &Value) -> String {
    let mut table = Table::new(&[
        ("PROCESS", Side::Right),
        ("PROGRAM", Side::Left),
        ("USER", Side::Right),
        ("CONNECTIONS", Side::Right),
        ("CONNECTS", Side::Right),
        ("ACCEPTS", Side::Right),
        ("KERNEL", Side::Right),
        ("SENT", Side::Right),
        ("RECEIVED", Side::Right),
        ("NOTIFICATIONS", Side::Right),
        ("SLEEPS", Side::Right),
    ]);
    let mut processes: Vec<&Value> = list(top, "processes").iter().collect();
    processes.sort_by_key(|process| Reverse(moved(process)));
    for process in processes {
        let kernel = count(process, "kernel_connects") + count(process, "kernel_accepts");
        table.row(vec![
            process["process"].to_string(),
            name(&process["program"]),
            process["user"].to_string(),
            number(&process["connections"]),
            number(&process["connects"]),
            number(&process["accepts"]),
            crate::terminal::quantity::grouped(kernel),
            number(&process["bytes_sent"]),
            number(&process["bytes_received"]),
            number(&process["notifications"]),
            number(&process["sleeps"]),
        ]);
    }
    table.text()
}

fn moved(process: &Value) -> u128 {
    count(process, "bytes_sent") + count(process, "bytes_received")
}

fn count(process: &Value, name: &str) -> u128 {
    process[name].as_u64().unwrap_or(0).into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn processes_are_sorted_by_bytes() {
        let top = json!({"processes": [
            {"process": 1, "program": "idle", "user": 0, "bytes_sent": 1},
            {"process": 2, "program": null, "user": 0, "bytes_sent": 5000, "bytes_received": u64::MAX},
        ]});
        let text = text(&top);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].trim_start().starts_with("2 "), "{text}");
        assert!(lines[2].contains("idle"), "{text}");
    }
}
