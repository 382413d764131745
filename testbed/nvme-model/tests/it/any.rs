//! A host that does anything at all: the controller answers and never panics.

use millrace_nvme_model::{Options, SglSupport};
use proptest::prelude::*;

use crate::host::{DATA, Host, LISTS};

/// What the host does.
#[derive(Clone, Debug)]
enum Act {
    Submit {
        queue: usize,
        id: u16,
        words: [u32; 16],
    },
    Ring {
        doorbell: usize,
        value: u32,
    },
    Store {
        offset: u64,
        value: u32,
    },
    Scribble {
        at: usize,
        value: u64,
    },
    Config {
        offset: u16,
        value: u32,
    },
    Poll,
    Step,
}

/// A word that is often small, often a bit, sometimes anything.
fn word() -> impl Strategy<Value = u32> {
    prop_oneof![
        4 => Just(0),
        4 => 0..20_u32,
        2 => (0..32_u32).prop_map(|bit| 1 << bit),
        1 => (0..64_u32, 0..64_u32).prop_map(|(low, high)| high << 16 | low),
        1 => any::<u32>(),
    ]
}

/// Commands whose data pointers are mostly in the memory that is mapped: filled in when it is known.
fn act() -> impl Strategy<Value = Act> {
    let opcode = prop_oneof![
        8 => 0..0x0e_u32,
        1 => Just(0x7c),
        1 => Just(0x80),
        1 => 0..0x1_0000_u32,
    ];
    let words = (opcode, 0..4_u32, prop::array::uniform16(word()));
    let words = words.prop_map(|(opcode, namespace, mut words)| {
        (words[0], words[1]) = (opcode, namespace);
        for reserved in &mut words[2..6] {
            *reserved &= 1;
        }
        words
    });
    prop_oneof![
        10 => (0..2_usize, 0..100_u16, words)
            .prop_map(|(queue, id, words)| Act::Submit { queue, id, words }),
        1 => (0..8_usize, word()).prop_map(|(doorbell, value)| Act::Ring { doorbell, value }),
        1 => (0..0x20_u64, word()).prop_map(|(word, value)| Act::Store { offset: word * 4, value }),
        3 => (0..64_usize, any::<u64>()).prop_map(|(at, value)| Act::Scribble { at: at * 8, value }),
        1 => (0..0x40_u16, word()).prop_map(|(word, value)| Act::Config { offset: word * 4, value }),
        6 => Just(Act::Poll),
        6 => Just(Act::Step),
    ]
}

fn perform(host: &mut Host, act: &Act) {
    match *act {
        Act::Submit {
            queue,
            id,
            mut words,
        } => {
            // Mostly a sound pointer; its low bits stay as they were drawn.
            let (low, high) = crate::host::halves(host.address(DATA));
            if words[7] < 20 {
                (words[6], words[7]) = (low | words[6] & 0xff, high);
            }
            let (low, high) = crate::host::halves(host.address(LISTS));
            if words[9] < 10 {
                (words[8], words[9]) = (low | words[8] & 0xff, high);
            }
            host.submit_as(queue, id, words);
        }
        Act::Ring { doorbell, value } => host.ring(doorbell, value),
        Act::Store { offset, value } => host.set_register(offset, value),
        Act::Scribble { at, value } => {
            let data = host.address(DATA);
            host.memory.store_u64(LISTS + at, data | value & 0x7_f00f);
            host.memory.store_u64(DATA + at, value);
        }
        Act::Config { offset, value } => {
            let written = host.function.write_config(offset, &value.to_le_bytes());
            written.expect("it is in range");
        }
        Act::Poll => {
            host.poll(0);
            host.poll(1);
        }
        Act::Step => {
            host.controller.step();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn nothing_makes_the_controller_panic(
        seed: u64,
        has_sgl: bool,
        acts in prop::collection::vec(act(), 0..200),
    ) {
        let mut host = Host::ready(Options {
            seed,
            sgl: if has_sgl { SglSupport::Any } else { SglSupport::None },
            ..Options::default()
        });
        for act in acts {
            perform(&mut host, &act);
        }
        host.controller.power_cut();
        host.function.set_bus_master(true).expect("the model is there");
        host.enable();
    }
}
