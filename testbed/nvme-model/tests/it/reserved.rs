//! Fields that must be zero, one by one: each command as it should be, then with one bit too many.

use millrace_nvme_model::{Options, Rule};

use crate::host::{DATA, Host, LISTS, command, set_blocks, set_prp};

/// How a command is tried.
struct Case {
    what: &'static str,
    queue: usize,
    command: [u32; 16],
    /// Dwords that must be zero as a whole.
    unused: Vec<usize>,
    /// Bits of others: dword and bit.
    reserved: Vec<(usize, u32)>,
}

fn ready() -> Host {
    Host::ready(Options {
        version: 0x0002_0000,
        ..Options::default()
    })
}

/// Gives each command with each bit, and with none, to a fresh controller.
fn try_all(cases: impl Fn(&mut Host) -> Vec<Case>) {
    let count = cases(&mut ready()).len();
    for number in 0..count {
        let case = |host: &mut Host| cases(host).swap_remove(number);
        let mut host = ready();
        let lawful = case(&mut host);
        host.run(lawful.queue, lawful.command);
        host.assert_lawful();
        let bits = [0, 31].map(|bit| lawful.unused.iter().map(move |dword| (*dword, bit)));
        let all = bits.into_iter().flatten().chain(lawful.reserved.clone());
        for (dword, bit) in all {
            let mut host = ready();
            let mut breach = case(&mut host);
            breach.command[dword] |= 1 << bit;
            host.run(breach.queue, breach.command);
            assert_eq!(
                host.broken_rules(),
                [Rule::ReservedField],
                "{}, bit {bit} of dword {dword}",
                breach.what
            );
        }
    }
}

const NAMESPACE: [usize; 1] = [1];
const POINTER: [usize; 4] = [6, 7, 8, 9];
const PRP2: [usize; 2] = [8, 9];

fn unused(parts: &[&[usize]], from: usize) -> Vec<usize> {
    let parts = parts.iter().flat_map(|part| part.iter().copied());
    parts.chain(from..16).collect()
}

fn case(what: &'static str, queue: usize, command: [u32; 16], unused: Vec<usize>) -> Case {
    Case {
        what,
        queue,
        command,
        unused,
        reserved: Vec::new(),
    }
}

/// An admin command with dwords 10 and 11, and a page at `DATA`.
fn admin(host: &Host, opcode: u32, namespace: u32, dwords: [u32; 2], has_data: bool) -> [u32; 16] {
    let mut command = command(opcode, namespace);
    (command[10], command[11]) = (dwords[0], dwords[1]);
    if has_data {
        set_prp(&mut command, host.address(DATA), 0);
    }
    command
}

#[test]
fn of_queues() {
    try_all(|host| {
        let create_completion = admin(host, 0x05, 0, [63 << 16 | 2, 1], true);
        let create_submission = admin(host, 0x01, 0, [63 << 16 | 2, 1 << 16 | 1], true);
        let delete = admin(host, 0x00, 0, [1, 0], false);
        let creation = || unused(&[&NAMESPACE, &PRP2], 12);
        vec![
            Case {
                reserved: vec![(11, 2), (11, 15)],
                ..case("create completion", 0, create_completion, creation())
            },
            Case {
                reserved: vec![(11, 3), (11, 15)],
                ..case("create submission", 0, create_submission, creation())
            },
            Case {
                reserved: vec![(10, 16), (0, 14)],
                ..case("delete", 0, delete, unused(&[&NAMESPACE, &POINTER], 11))
            },
        ]
    });
    // The completion queue of a queue pair can be deleted only after the submission queue.
    for dword in [1, 6, 9, 11, 15] {
        let mut host = ready();
        let delete = admin(&host, 0x00, 0, [1, 0], false);
        assert_eq!(host.admin(delete).status, 0);
        let mut delete = admin(&host, 0x04, 0, [1, 0], false);
        delete[dword] = 1;
        assert_eq!(host.admin(delete).status, 0);
        assert_eq!(host.broken_rules(), [Rule::ReservedField]);
    }
}

#[test]
fn of_identify_and_log_pages() {
    try_all(|host| {
        let controller = admin(host, 0x06, 0, [1, 0], true);
        let namespace = admin(host, 0x06, 1, [0, 0], true);
        let of_a_set = admin(host, 0x06, 0, [6, 0], true);
        let log = admin(host, 0x02, u32::MAX, [127 << 16 | 2, 0], true);
        vec![
            Case {
                reserved: vec![(10, 8), (10, 16), (10, 31)],
                ..case(
                    "controller",
                    0,
                    controller,
                    unused(&[&NAMESPACE, &PRP2], 11),
                )
            },
            Case {
                reserved: vec![(10, 16), (11, 24)],
                ..case("namespace", 0, namespace, unused(&[&PRP2], 11))
            },
            Case {
                reserved: vec![(11, 0), (11, 23)],
                ..case("command set", 0, of_a_set, unused(&[&NAMESPACE], 12))
            },
            Case {
                reserved: vec![(10, 8), (10, 14), (11, 16)],
                ..case("log page", 0, log, unused(&[&PRP2], 14))
            },
        ]
    });
}

#[test]
fn of_other_admin_commands() {
    try_all(|host| {
        let get = admin(host, 0x0a, 0, [7, 0], false);
        let set = admin(host, 0x09, 0, [6, 1], false);
        let timestamp = admin(host, 0x0a, 0, [0x0e, 0], true);
        let abort = admin(host, 0x08, 0, [1, 0], false);
        let mut buffers = admin(host, 0x7c, 0, [0, 0], false);
        set_prp(&mut buffers, host.address(DATA), host.address(LISTS));
        let format = admin(host, 0x80, 1, [1, 0], false);
        vec![
            Case {
                reserved: vec![(10, 11), (10, 31)],
                ..case("get features", 0, get, unused(&[&POINTER], 11))
            },
            case("set features", 0, set, unused(&[&POINTER], 12)),
            case("timestamp", 0, timestamp, unused(&[&PRP2], 11)),
            case("abort", 0, abort, unused(&[&NAMESPACE, &POINTER], 11)),
            case("buffers", 0, buffers, unused(&[&NAMESPACE], 10)),
            Case {
                reserved: vec![(10, 12)],
                ..case("format", 0, format, unused(&[&POINTER], 11))
            },
        ]
    });
    // An event request is not answered.
    for dword in [1, 6, 9, 10, 15] {
        let mut host = ready();
        let mut request = command(0x0c, 0);
        request[dword] = 1;
        host.submit(0, request);
        host.controller.step();
        assert_eq!(host.broken_rules(), [Rule::ReservedField]);
    }
}

#[test]
fn of_nvm_commands() {
    try_all(|host| {
        let mut zeroes = command(0x08, 1);
        set_blocks(&mut zeroes, 0, 4);
        let mut spoil = command(0x04, 1);
        set_blocks(&mut spoil, 0, 4);
        let mut deallocate = command(0x09, 1);
        set_prp(&mut deallocate, host.address(DATA), 0);
        vec![
            Case {
                reserved: vec![(0, 14)],
                ..case("flush", 1, command(0, 1), unused(&[&POINTER], 10))
            },
            Case {
                reserved: vec![(12, 16), (12, 29), (0, 14)],
                ..case("write zeroes", 1, zeroes, unused(&[&POINTER], 13))
            },
            Case {
                reserved: vec![(12, 16)],
                ..case("write uncorrectable", 1, spoil, unused(&[&POINTER], 13))
            },
            Case {
                reserved: vec![(10, 8), (11, 3)],
                ..case("dataset management", 1, deallocate, unused(&[&PRP2], 12))
            },
        ]
    });
}

#[test]
fn a_namespace_where_all_are_meant() {
    let mut host = ready();
    for (opcode, dword) in [(0x02, 127 << 16 | 2), (0x0a, 7), (0x09, 6)] {
        for namespace in [0, u32::MAX, 1] {
            let command = admin(&host, opcode, namespace, [dword, 0], opcode == 2);
            assert_eq!(host.admin(command).status, 0);
        }
        assert_eq!(host.broken_rules(), [Rule::FieldValue], "{opcode:#x}");
    }
}

#[test]
fn the_identifier_that_means_no_command() {
    let mut host = ready();
    host.submit_as(1, u16::MAX, command(0, 1));
    assert_eq!(host.next(1).status, 0);
    assert_eq!(host.broken_rules(), [Rule::FieldValue]);
}
