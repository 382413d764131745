//! A peer that stores arbitrary values: an error or bytes, but no panic and no endless loop.

use std::ops::ControlFlow;

use millrace_memory::{Pages, RegionOptions};
use millrace_random::Random;
use millrace_stream::{Geometry, Side};
use millrace_window::{LINE, WORD, Window};

use super::fixture::Host;

const GEOMETRY: Geometry = Geometry { ring_lines: 64 };
const AREA: usize = GEOMETRY.size() / 2;
const TAG: u64 = 0x6c6c_696d;

#[test]
fn garbage() {
    let mut errors = 0;
    for seed in 0..2000 {
        let mut random = Random::new(seed);
        let options = RegionOptions {
            pages: Pages::Base,
            node: None,
            locked: false,
        };
        let (window, file) = Window::create(GEOMETRY.size(), &options).expect("memory");
        let theirs = Window::attach(&file).expect("the same memory");
        let mut area = theirs.outgoing(AREA..2 * AREA).expect("an area");
        let mut host = Host::new(&window, GEOMETRY, Side::Connecting, vec![5; 20_000]);
        for _ in 0..60 {
            let mut line = [0; LINE];
            random.fill(&mut line);
            let position = host.received.position + random.below(3);
            if random.chance(7, 8) {
                // A valid word of any kind and length.
                let kind = random.below(5);
                let scale = random.below(16);
                let length = random.below(1 << scale);
                let word = ((position ^ TAG) & 0xffff_ffff) | length << 32 | kind << 48;
                line[..WORD].copy_from_slice(&word.to_le_bytes());
            }
            let place = match random.below(4) {
                0 => 128 * random.index(4),
                _ => 1024 + usize::try_from(position % 64).expect("small") * LINE,
            };
            let (word, rest) = line.split_first_chunk::<WORD>().expect("a line has a word");
            let mut slot = area.slot(place, LINE).expect("a line");
            slot.store(WORD, rest).expect("within");
            slot.publish(u64::from_le_bytes(*word) >> random.below(64));
            errors += act(&mut host, &mut random);
        }
    }
    assert!(errors > 1000, "{errors} errors");
}

fn act(host: &mut Host<millrace_window::Mapped>, random: &mut Random) -> u32 {
    let before = host.got.len();
    let size = 1 + random.index(9000);
    let sent = host.send(size);
    let peeked = {
        let (rings, mut bytes) = (&host.rings, vec![0; size]);
        rings
            .receiver
            .peek(&rings.peer_state, &host.received, &mut bytes)
    };
    assert!(peeked.as_ref().map_or(0, |peeked| peeked.bytes) <= size);
    let mut shown = 0;
    let borrowed = {
        let rings = &host.rings;
        rings
            .receiver
            .borrow(&rings.peer_state, &host.received, size, |piece| {
                shown += piece.length();
                piece.copy(0, &mut vec![0; piece.length()])?;
                assert!(!piece.address()?.is_null());
                Ok(ControlFlow::Continue(()))
            })
    };
    assert!(shown <= size && borrowed.as_ref().map_or(0, |borrowed| borrowed.bytes) <= size);
    if random.chance(1, 4) {
        // It was borrowed before the peer's last change.
        let rings = &mut host.rings;
        let wanted = 1 + random.index(size);
        let taken = rings
            .receiver
            .consume(&rings.peer_state, &mut host.received, wanted);
        assert!(taken.map_or(0, |taken| taken.bytes) <= wanted);
    }
    let rings = &mut host.rings;
    if let Ok(reserved) = rings
        .sender
        .reserve(&rings.peer_state, &mut host.sent, size)
    {
        assert!(reserved.length() <= size);
        let committed = rings.sender.commit(
            &mut host.sent,
            reserved,
            random.index(reserved.length() + 1),
        );
        assert!(committed.is_ok());
    }
    let pending = host
        .rings
        .receiver
        .pending(&host.rings.peer_state, &host.received);
    assert!(
        pending <= 64 * LINE,
        "{pending} bytes in a ring of {}",
        64 * LINE
    );
    let received = host.receive(size);
    assert!(host.got.len() - before <= size);
    let rings = &mut host.rings;
    let _ = rings.sender.wake(&rings.peer_state, &mut host.sent);
    let _ = rings.sender.arm(&rings.peer_state, &mut host.sent);
    let _ = rings.receiver.wake(&rings.peer_state, &mut host.received);
    let _ = rings.receiver.arm(&rings.peer_state, &mut host.received);
    let _ = rings.peer_state.closing();
    u32::from(sent.is_err()) + u32::from(peeked.is_err()) + u32::from(received.is_err())
}
