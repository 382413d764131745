//! Which window a region goes to, and which shape a new one has. Asks no kernel.
//!
//! # Choice
//! 1. A window that was made here, with the largest pages that are no larger than the region's.
//! 2. A new one, of the largest pages that the IOMMU has and that are no larger than the region's.
//! 3. The default window, whose pages are small.
//! 4. If it is too small and nothing is in it: a new window in its place. Before the default window is used,
//!    too, if there was no memory for a new one: then there may be none for the default one's table either.
//!
//! A table of a window fills pages of the host, so that a window smaller than what a page of entries
//! translates costs as much as one that large. The kernel keeps, and counts against the limit of locked
//! memory, two tables of 8 bytes a page for each window; those of a default window of 2 GiB have 8 MiB.
//!
//! # Invariants
//! 1. A region's addresses lie in one window.
//! 2. A window's pages divide those of the regions in it.
//! 3. Windows do not overlap.

use std::fmt;

use millrace_memory::{Iova, IovaRange, IovaSpace, Result};

/// The pages of the default window: 4 KiB on all machines so far.
const DEFAULT_PAGE_SHIFT: u32 = 12;

/// What the machine can do, and what is wanted of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facilities {
    /// The page sizes of windows that can be made: bit `n` for pages of `1 << n` bytes.
    pub(super) page_sizes: u64,
    pub(super) windows_max: u32,
    /// How many levels a window's table may have.
    pub(super) levels_max: u32,
    /// How large a window shall be.
    pub(super) window_size: u64,
    pub(super) host_page_size: u64,
}

/// The shape of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) page_shift: u32,
    pub(super) size: u64,
    pub(super) levels: u32,
}

/// Shapes to ask for, one after the other: the wanted size with more and more levels of tables, then half
/// of it, down to what is needed.
#[derive(Clone, Debug)]
pub(super) struct Attempts {
    page_shift: u32,
    size: u64,
    size_min: u64,
    levels: u32,
    levels_max: u32,
    host_page_size: u64,
}

impl Iterator for Attempts {
    type Item = Shape;

    fn next(&mut self) -> Option<Shape> {
        if self.levels > self.levels_max {
            self.size /= 2;
            self.levels = levels_min(self.size >> self.page_shift, self.host_page_size);
            self.levels = self.levels.min(self.levels_max);
        }
        if self.size < self.size_min {
            return None;
        }
        let shape = Shape {
            page_shift: self.page_shift,
            size: self.size,
            levels: self.levels,
        };
        self.levels += 1;
        Some(shape)
    }
}

/// With how many levels no table is larger than 256 pages of the host.
fn levels_min(entries: u64, host_page_size: u64) -> u32 {
    // Entries have 8 bytes.
    let entries_bits = entries.max(1).next_power_of_two().trailing_zeros();
    let level_bits = host_page_size.trailing_zeros() + 8 - 3;
    entries_bits.div_ceil(level_bits).max(1)
}

/// A window and what of it is free.
#[derive(Debug)]
struct Window {
    range: IovaRange,
    page_size: u64,
    space: IovaSpace,
    /// How many regions are in it.
    regions: u32,
}

impl Window {
    fn new(range: IovaRange, page_size: u64) -> Result<Self> {
        let space = IovaSpace::new(vec![range], page_size)?;
        Ok(Self {
            range,
            page_size,
            space,
            regions: 0,
        })
    }

    /// Addresses for a region, if its pages fit and there is room.
    fn take(&mut self, size: u64, page_size: u64) -> Option<Iova> {
        if page_size % self.page_size != 0 {
            return None;
        }
        // Aligned like the region's pages, as `Domain::map` promises.
        let iova = self.space.take(size, page_size).ok()?;
        self.regions += 1;
        Some(iova)
    }

    fn contains(&self, iova: Iova) -> bool {
        (self.range.first..=self.range.last).contains(&iova)
    }
}

/// The windows of a container.
#[derive(Debug)]
pub(super) struct Windows {
    facilities: Facilities,
    default: Option<Window>,
    /// Those that were made, the largest pages first.
    created: Vec<Window>,
}

impl Windows {
    /// The default window alone, if there is one.
    pub(super) fn new(facilities: Facilities, default: Option<IovaRange>) -> Result<Self> {
        // The kernel does not report the default window's page size. It is at most the host's.
        let default = default
            .map(|range| Window::new(range, facilities.host_page_size))
            .transpose()?;
        Ok(Self {
            facilities,
            default,
            created: Vec::new(),
        })
    }

    /// Addresses in a window that was made, if its pages are as large as any that could be made.
    pub(super) fn take_created(&mut self, size: u64, page_size: u64) -> Option<Iova> {
        self.created
            .iter_mut()
            .find_map(|window| window.take(size, page_size))
    }

    /// Addresses in the default window.
    pub(super) fn take_default(&mut self, size: u64, page_size: u64) -> Option<Iova> {
        self.default.as_mut()?.take(size, page_size)
    }

    /// Gives addresses back.
    pub(super) fn give(&mut self, iova: Iova) -> Result<()> {
        let windows = self.created.iter_mut().chain(self.default.as_mut());
        for window in windows {
            if window.contains(iova) {
                window.space.give(iova)?;
                window.regions = window.regions.saturating_sub(1);
                return Ok(());
            }
        }
        let context = format!("device address {iova} in no window");
        Err(millrace_memory::Error::new(
            millrace_memory::ErrorKind::NotMapped,
            context,
        ))
    }

    /// Which pages a window for a region has.
    fn page_shift(&self, page_size: u64) -> Option<u32> {
        // All sizes are powers of two, so that what is not larger divides.
        let fitting = self.facilities.page_sizes & (page_size | page_size.wrapping_sub(1));
        fitting.checked_ilog2()
    }

    /// How small a window for a region may be.
    fn size_min(size: u64, page_shift: u32) -> Option<u64> {
        // A window that begins at 0 cannot use its first page.
        let size = size.checked_add(1 << page_shift)?;
        size.checked_next_power_of_two()
    }

    /// The shapes of a window for a region; none if no window can be made for it.
    pub(super) fn attempts(&self, size: u64, page_size: u64) -> Option<Attempts> {
        let most = self.facilities.windows_max as usize;
        if self.created.len() >= most {
            return None;
        }
        let page_shift = self.page_shift(page_size)?;
        let size_min = Self::size_min(size, page_shift)?;
        let wanted = self.facilities.window_size.checked_next_power_of_two()?;
        let host_page_size = self.facilities.host_page_size;
        let page_of_entries = (host_page_size / 8).checked_mul(1 << page_shift);
        let size = size_min.max(wanted).max(page_of_entries.unwrap_or(0));
        let levels_max = self.facilities.levels_max.max(1);
        let levels = levels_min(size >> page_shift, host_page_size).min(levels_max);
        Some(Attempts {
            page_shift,
            size,
            size_min,
            levels,
            levels_max,
            host_page_size,
        })
    }

    /// How many bytes the tables of the smallest window for a region have.
    pub(super) fn table_size(&self, size: u64, page_size: u64) -> usize {
        let table = self.page_shift(page_size).and_then(|shift| {
            let window = Self::size_min(size, shift)?;
            usize::try_from((window >> shift).checked_mul(16)?).ok()
        });
        table.unwrap_or(usize::MAX)
    }

    /// Notes a window that was made.
    pub(super) fn add(&mut self, start: u64, shape: Shape) -> std::result::Result<(), Senseless> {
        let last = start.checked_add(shape.size - 1).ok_or(Senseless)?;
        let range = IovaRange {
            first: Iova(start),
            last: Iova(last),
        };
        let mut others = self.created.iter().chain(&self.default);
        if others.any(|other| other.contains(range.first) || range.contains_first_of(&other.range))
        {
            return Err(Senseless);
        }
        let window = Window::new(range, 1 << shape.page_shift).map_err(|_| Senseless)?;
        let place = self
            .created
            .partition_point(|other| other.page_size > window.page_size);
        self.created.insert(place, window);
        Ok(())
    }

    /// Where the default window begins and which shape it has, if there is one and nothing is in it.
    pub(super) fn unused_default(&self) -> Option<(u64, Shape)> {
        let window = self.default.as_ref()?;
        let IovaRange { first, last } = window.range;
        let shape = Shape {
            page_shift: DEFAULT_PAGE_SHIFT,
            size: last.0 - first.0 + 1,
            levels: 1,
        };
        (window.regions == 0).then_some((first.0, shape))
    }

    /// Notes that the default window was removed.
    pub(super) fn forget_default(&mut self) {
        self.default = None;
    }
}

/// A window lies where it cannot.
#[derive(Debug)]
pub(super) struct Senseless;

/// Whether one range has the first address of another.
trait ContainsFirst {
    fn contains_first_of(&self, other: &Self) -> bool;
}

impl ContainsFirst for IovaRange {
    fn contains_first_of(&self, other: &Self) -> bool {
        (self.first..=self.last).contains(&other.first)
    }
}

impl fmt::Display for Windows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "windows:")?;
        for window in self.created.iter().chain(&self.default) {
            let IovaRange { first, last } = window.range;
            let page_size = window.page_size;
            write!(f, " {first} to {last} in pages of {page_size} bytes;")?;
        }
        let facilities = &self.facilities;
        write!(
            f,
            " {} more can be made, pages {:#x}",
            (facilities.windows_max as usize).saturating_sub(self.created.len()),
            facilities.page_sizes
        )
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const POWERNV9: Facilities = Facilities {
        page_sizes: 1 << 12 | 1 << 16 | 1 << 21 | 1 << 30,
        windows_max: 2,
        levels_max: 5,
        window_size: 16 << 30,
        host_page_size: 64 << 10,
    };

    fn windows(facilities: Facilities) -> Windows {
        let default = IovaRange {
            first: Iova(0),
            last: Iova((2 << 30) - 1),
        };
        Windows::new(facilities, Some(default)).expect("a window below 4 GiB")
    }

    #[test]
    fn pages_are_the_largest_that_divide_those_of_the_region() {
        let rows = [
            (4 << 10, Some(12)),
            (16 << 10, Some(12)),
            (64 << 10, Some(16)),
            (2 << 20, Some(21)),
            // The huge pages of a POWER8 and of hash tables.
            (16 << 20, Some(21)),
            (1 << 30, Some(30)),
            (16 << 30, Some(30)),
            (2 << 10, None),
        ];
        let windows = windows(POWERNV9);
        for (page_size, expected) in rows {
            assert_eq!(windows.page_shift(page_size), expected, "{page_size}");
        }
    }

    #[test]
    fn shapes_go_from_what_is_wanted_to_what_is_needed() {
        let facilities = Facilities {
            levels_max: 2,
            window_size: 1 << 30,
            ..POWERNV9
        };
        let windows = windows(facilities);
        let shapes: Vec<(u64, u32)> = windows
            .attempts(100 << 20, 64 << 10)
            .expect("there is room for a window")
            .map(|shape| (shape.size, shape.levels))
            .collect();
        let sizes = [1 << 30, 1 << 29, 1 << 28, 1 << 27];
        let expected: Vec<(u64, u32)> = sizes
            .into_iter()
            .flat_map(|size| [(size, 1), (size, 2)])
            .collect();
        assert_eq!(shapes, expected);
    }

    #[test]
    fn a_page_of_entries_is_filled() {
        let facilities = Facilities {
            window_size: 1,
            ..POWERNV9
        };
        let mut shapes = windows(facilities).attempts(64 << 10, 64 << 10);
        let shape = shapes.as_mut().and_then(Iterator::next);
        assert_eq!(shape.map(|shape| shape.size), Some(512 << 20));
    }

    #[test]
    fn large_tables_begin_with_more_levels() {
        // 16 MiB of entries fit into one level on a host with pages of 64 KiB.
        assert_eq!(levels_min(1 << 21, 64 << 10), 1);
        assert_eq!(levels_min(1 << 22, 64 << 10), 2);
        assert_eq!(levels_min(1, 4 << 10), 1);
        assert_eq!(levels_min(0, 4 << 10), 1);
    }

    proptest! {
        /// A plain list of what is taken is the oracle.
        #[test]
        fn addresses_lie_in_windows_and_do_not_overlap(
            regions in proptest::collection::vec((1_u64..40, 0_u32..3, any::<bool>()), 1..40),
            start in prop_oneof![Just(4_u64 << 30), Just(0x800_0000_0000_0000_u64)],
        ) {
            let mut windows = windows(POWERNV9);
            let shape = Shape { page_shift: 16, size: 4 << 20, levels: 1 };
            prop_assert!(windows.add(start, shape).is_ok());
            prop_assert!(windows.add(start + 0x1_0000, shape).is_err());
            let mut taken: Vec<(u64, u64)> = Vec::new();
            for (pages, kind, default) in regions {
                let page_size = [4_u64 << 10, 64 << 10, 2 << 20][kind as usize];
                let size = pages * page_size;
                let found = match default {
                    true => windows.take_default(size, page_size),
                    false => windows.take_created(size, page_size),
                };
                let Some(Iova(first)) = found else {
                    continue;
                };
                let last = first + (size - 1);
                let within = match default {
                    true => last < 2 << 30,
                    false => first >= start && last < start + shape.size,
                };
                prop_assert!(within && first % page_size.min(1 << 16) == 0 && first != 0);
                prop_assert!(taken.iter().all(|(a, b)| last < *a || *b < first));
                taken.push((first, last));
            }
            prop_assert_eq!(
                windows.unused_default().is_some(),
                taken.iter().all(|(first, _)| *first >= start)
            );
            for (first, _) in taken {
                prop_assert!(windows.give(Iova(first)).is_ok());
                prop_assert!(windows.give(Iova(first)).is_err());
            }
            prop_assert_eq!(windows.unused_default().map(|(start, _)| start), Some(0));
        }

        /// Whatever a machine says of itself, there is an end of attempts and each makes sense.
        #[test]
        fn attempts_end(
            page_sizes: u64,
            levels_max in 0_u32..8,
            window_size: u64,
            size: u64,
            page_bits in 12_u32..40,
            host_bits in 12_u32..17,
        ) {
            let facilities = Facilities {
                page_sizes,
                levels_max,
                window_size,
                windows_max: 1,
                host_page_size: 1 << host_bits,
            };
            let attempts = windows(facilities).attempts(size, 1 << page_bits);
            for (count, shape) in attempts.into_iter().flatten().enumerate() {
                prop_assert!(count < 64 * 8);
                prop_assert!(shape.size.is_power_of_two() && shape.size > size);
                prop_assert!(shape.page_shift <= page_bits);
                prop_assert!(page_sizes & 1 << shape.page_shift != 0);
                prop_assert!((1..=levels_max.max(1)).contains(&shape.levels));
            }
        }
    }
}
