//! What is said of room is so: a send takes something if there is room, and there is none when it takes nothing.

use millrace_memory::{Pages, RegionOptions};
use millrace_random::Random;
use millrace_stream::{Geometry, Lane, ReceiveCursor, SendCursor, Side};
use millrace_window::Window;

#[test]
fn room_is_where_a_send_finds_it() {
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let geometry = Geometry {
            ring_lines: [64, 256, 1024][random.index(3)],
        };
        let options = RegionOptions {
            pages: Pages::Base,
            node: None,
            locked: false,
        };
        let (window, file) = Window::create(geometry.size(), &options).expect("memory");
        let second = Window::attach(&file).expect("the same memory");
        let mut ours = Lane::new(&window, geometry, Side::Connecting).expect("a lane");
        let mut theirs = Lane::new(&second, geometry, Side::Accepting).expect("a lane");
        let (mut sent, mut received) = (SendCursor::default(), ReceiveCursor::default());
        let (mut into, bytes) = ([0; 4096], [7; 9000]);
        let largest = [8, 60, 300, 9000][random.index(4)];
        for step in 0..4000 {
            // The reader keeps up for a while, then it stalls until nothing more is taken.
            if step / 200 % 3 != 2 {
                let taken = theirs
                    .receiver
                    .receive(&theirs.sight, &mut received, &mut into);
                taken.expect("a sound peer");
            }
            let said = ours.sight.has_room(&sent);
            let length = 1 + random.index(largest);
            let count = ours
                .sender
                .send(&ours.sight, &mut sent, &bytes[..length])
                .expect("a sound peer");
            assert!(
                count > 0 || !said,
                "seed {seed}: no room where some was said to be"
            );
            assert!(
                count > 0 || !ours.sight.has_room(&sent),
                "seed {seed}: room that a send does not find"
            );
        }
    }
}
