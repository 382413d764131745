//! One side in a guest, the other in another.

use millrace_stream::Side;

use crate::devices::{self, Kind};
use crate::error::Result;
use crate::talk::{self, Talk};
use crate::{Settings, report, slots};

/// Exchanges slots and messages through the first device, mapped in both ways; and then messages through the second
/// until the peer dies, which is for the connecting side to see.
pub(crate) fn run(side: Side, settings: Settings) -> Result<String> {
    let found = devices::ivshmem(None)?;
    let (first, second) = (devices::nth(&found, 0)?, devices::nth(&found, 1)?);
    let mut count = 0;
    let kinds = [Kind::WriteCombining, Kind::Uncached];
    for round in 0..4 {
        let kind = match side {
            Side::Connecting => kinds[round % 2],
            Side::Accepting => kinds[round / 2],
        };
        let window = devices::open(first, kind)?;
        let start = talk::PLACE.next_multiple_of(slots::PLACE) + round * slots::PLACE;
        count += slots::exchange(&window, start, side, settings.seed_of(round))?;
    }
    println!("client: {count} slots");
    let (own, other) = match side {
        Side::Connecting => (Kind::WriteCombining, Kind::Uncached),
        Side::Accepting => (Kind::Uncached, Kind::WriteCombining),
    };
    let window = devices::open(first, own)?;
    let bytes = Talk::new(&window, side, settings.seed)?.exchange(settings.messages)?;
    let lane = report(settings.messages, bytes);
    println!("client: {lane}");

    let window = devices::open(second, other)?;
    let mut talk = Talk::new(&window, side, !settings.seed)?;
    let half = match side {
        Side::Connecting => settings.messages / 2,
        // It is the one that dies.
        Side::Accepting => u64::MAX,
    };
    let (whole, part) = talk.outlive(half, || println!("client: half way"))?;
    let death = format!(
        "no progress after the peer's death: {whole} messages and {part} bytes, all as sent"
    );
    Ok(format!("{count} slots, {lane}; {death}"))
}
