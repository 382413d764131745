//! Text that is taken for rules of user-level sockets: `cargo +nightly fuzz run sockets_rules`.

#![no_main]

use millrace_broker::rules::{Direction, Rules};

libfuzzer_sys::fuzz_target!(|text: &str| {
    let parsed = Rules::parse(text, &|name| u32::try_from(name.len()).ok());
    if let Ok(rules) = parsed {
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], 80)).into();
        let verdict = rules.decide(Direction::Connect, 4, address);
        assert_eq!(verdict, rules.decide(Direction::Connect, 4, address));
        std::hint::black_box(rules.admit_others(4));
    }
});
