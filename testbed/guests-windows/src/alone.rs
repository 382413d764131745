//! Both sides in one guest: two windows on the same memory, a thread for each.

use std::path::Path;
use std::thread;

use millrace_pci::{Address, vfio};
use millrace_stream::Side;
use millrace_window::{Attributes, Cacheability, Direction, Window};

use crate::devices::{self, BAR, Kind};
use crate::error::{Result, refused};
use crate::talk::{self, Talk};
use crate::{Settings, report, slots};

/// A DAX device that is mapped twice, as memory whose caches the hardware keeps equal and as memory where they are
/// flushed by hand.
pub(crate) fn dax(path: &Path, settings: Settings) -> Result<String> {
    let open = |coherent| Window::open_dax(path, coherent).map_err(refused("a window"));
    let mut count = 0;
    let pairs = [(true, true), (true, false), (false, true), (false, false)];
    for (round, (first, second)) in pairs.into_iter().enumerate() {
        let windows = [open(first)?, open(second)?];
        count += exchange_slots(&windows, round, settings)?;
    }
    let lane = exchange_messages(&[open(false)?, open(false)?], settings)?;
    let size = open(true)?.size() >> 20;
    Ok(format!("{size} MiB of DAX, {count} slots, {lane}"))
}

/// The BAR of a function that this process has by VFIO, and that of another function with the same memory through
/// sysfs.
pub(crate) fn bar(address: Address, settings: Settings) -> Result<String> {
    let function = vfio::open(address, vfio::Options::default())
        .map_err(refused(format!("{address} by VFIO")))?;
    let bar = function.bar(BAR).map_err(refused("the BAR"))?;
    let attributes = Attributes {
        cacheability: Cacheability::Uncached,
        coherent: true,
        direction: Direction::Both,
    };
    let own = || {
        // SAFETY: this process uses no register of this bar, and the only other windows of it, made before by the
        // same closure, are gone when the next one is made.
        unsafe { Window::on_bar(&bar, 0..bar.size(), attributes) }.map_err(refused("a window"))
    };
    let found = devices::ivshmem(Some(address))?;
    let other = devices::nth(&found, 0)?;
    let mut count = 0;
    for (round, kind) in [Kind::Uncached, Kind::WriteCombining]
        .into_iter()
        .enumerate()
    {
        count += exchange_slots(&[own()?, devices::open(other, kind)?], 2 * round, settings)?;
        count += exchange_slots(
            &[devices::open(other, kind)?, own()?],
            2 * round + 1,
            settings,
        )?;
    }
    let windows = [own()?, devices::open(other, Kind::WriteCombining)?];
    let lane = exchange_messages(&windows, settings)?;
    let size = bar.size() >> 20;
    Ok(format!(
        "{size} MiB of a BAR by VFIO, {count} slots, {lane}"
    ))
}

fn exchange_slots(windows: &[Window; 2], round: usize, settings: Settings) -> Result<u64> {
    let start = talk::PLACE.next_multiple_of(slots::PLACE) + round * slots::PLACE;
    let seed = settings.seed_of(round);
    both(windows, |window, side| {
        slots::exchange(window, start, side, seed)
    })
}

fn exchange_messages(windows: &[Window; 2], settings: Settings) -> Result<String> {
    let bytes = both(windows, |window, side| {
        Talk::new(window, side, settings.seed)?.exchange(settings.messages)
    })?;
    Ok(report(settings.messages, bytes))
}

/// Has each side run in a thread; returns what the connecting one does.
fn both<T: Send>(
    windows: &[Window; 2],
    run: impl Fn(&Window, Side) -> Result<T> + Sync,
) -> Result<T> {
    let [ours, theirs] = windows;
    thread::scope(|scope| {
        let peer = scope.spawn(|| run(theirs, Side::Accepting));
        let own = run(ours, Side::Connecting);
        let peer = peer.join().expect("no thread of this program panics");
        // Of two failures the report is that of the side that did not only wait.
        match (own, peer) {
            (Ok(own), Ok(_)) => Ok(own),
            (Err(error), Ok(_)) | (Ok(_), Err(error)) => Err(error),
            (Err(crate::Error::Silence { .. }), Err(error)) | (Err(error), Err(_)) => Err(error),
        }
    })
}

#[cfg(test)]
mod tests {
    use millrace_memory::{Pages, RegionOptions};

    use super::*;
    use crate::error::Error;

    fn windows() -> [Window; 2] {
        let options = RegionOptions {
            pages: Pages::Base,
            node: None,
            locked: false,
        };
        let (ours, file) = Window::create(2 << 20, &options).expect("memory is there");
        [ours, Window::attach(file).expect("made for it")]
    }

    #[test]
    fn shared_memory_of_one_host_passes() {
        let settings = Settings {
            seed: 1,
            messages: 2000,
        };
        let windows = windows();
        assert!(exchange_slots(&windows, 0, settings).expect("all as sent") > 2000);
        exchange_messages(&windows, settings).expect("all as sent");
    }

    #[test]
    fn other_bytes_are_found_out() {
        let result = both(&windows(), |window, side| {
            let seed = u64::from(side == Side::Connecting);
            Talk::new(window, side, seed)?.exchange(10)
        });
        assert!(matches!(result, Err(Error::Wrong(_))));
    }
}
