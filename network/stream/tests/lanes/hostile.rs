//! A peer that stores what it likes: an error or bytes, but no panic and no endless loop.

use std::ops::ControlFlow;

use millrace_memory::{Pages, RegionOptions};
use millrace_random::Random;
use millrace_stream::{Geometry, Side};
use millrace_window::{LINE, WORD, Window};

use crate::bed::Host;

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
                // A word that fits its place, of any kind and length.
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
        let (lane, mut bytes) = (&host.lane, vec![0; size]);
        lane.receiver.peek(&lane.sight, &host.received, &mut bytes)
    };
    assert!(peeked.as_ref().map_or(0, |peeked| peeked.bytes) <= size);
    let mut shown = 0;
    let borrowed = {
        let lane = &host.lane;
        lane.receiver
            .borrow(&lane.sight, &host.received, size, |piece| {
                shown += piece.length();
                piece.copy(0, &mut vec![0; piece.length()])?;
                assert!(!piece.address()?.is_null());
                Ok(ControlFlow::Continue(()))
            })
    };
    assert!(shown <= size && borrowed.as_ref().map_or(0, |borrowed| borrowed.bytes) <= size);
    if random.chance(1, 4) {
        // It was borrowed before the peer's last change.
        let lane = &mut host.lane;
        let wanted = 1 + random.index(size);
        let taken = lane
            .receiver
            .consume(&lane.sight, &mut host.received, wanted);
        assert!(taken.map_or(0, |taken| taken.bytes) <= wanted);
    }
    let lane = &mut host.lane;
    if let Ok(reserved) = lane.sender.reserve(&lane.sight, &mut host.sent, size) {
        assert!(reserved.length() <= size);
        let committed = lane.sender.commit(
            &mut host.sent,
            reserved,
            random.index(reserved.length() + 1),
        );
        assert!(committed.is_ok());
    }
    let pending = host.lane.receiver.pending(&host.lane.sight, &host.received);
    assert!(
        pending <= 64 * LINE,
        "{pending} bytes in a ring of {}",
        64 * LINE
    );
    let received = host.receive(size);
    assert!(host.got.len() - before <= size);
    let lane = &mut host.lane;
    let _ = lane.sender.wake(&lane.sight, &mut host.sent);
    let _ = lane.sender.arm(&lane.sight, &mut host.sent);
    let _ = lane.receiver.wake(&lane.sight, &mut host.received);
    let _ = lane.receiver.arm(&lane.sight, &mut host.received);
    let _ = lane.sight.closing();
    u32::from(sent.is_err()) + u32::from(peeked.is_err()) + u32::from(received.is_err())
}
