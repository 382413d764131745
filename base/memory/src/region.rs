//! Memory that is there, shared, and not swapped out.

use std::fmt;
#[cfg(target_os = "linux")]
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

#[cfg(any(not(target_os = "linux"), miri))]
use crate::heap::Heap as Backing;
#[cfg(all(target_os = "linux", not(miri)))]
use crate::memfd::Memfd as Backing;
use crate::{Error, ErrorKind, HugePages, Result, base_page_size};

/// Auto takes huge pages if at most this part of them is left over.
const WASTE_DIVISOR: usize = 8;

/// Of which pages a region is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pages {
    /// The largest huge pages of which enough are free and at most an eighth of the memory is left over by
    /// rounding up; the next smaller ones where those fail; base pages if there are none.
    #[default]
    Auto,
    /// Base pages of the machine.
    Base,
    /// Huge pages of this many bytes each.
    Huge(usize),
}

impl Pages {
    /// Makes something of the best pages for `size` bytes that serve. `attempt` is given `Base` or `Huge`.
    ///
    /// # Errors
    /// Of the last attempt, or of the first that smaller pages would not mend.
    pub(crate) fn first_that_serve<T>(
        self,
        size: usize,
        attempt: impl FnMut(Self) -> Result<T>,
    ) -> Result<T> {
        match self {
            Self::Auto => {
                let offered = HugePages::offered();
                let huge = auto_sizes(size, &offered);
                first_of(huge.map(Self::Huge), Self::Base, attempt)
            }
            chosen => first_of([], chosen, attempt),
        }
    }
}

fn first_of<T>(
    choices: impl IntoIterator<Item = Pages>,
    last: Pages,
    mut attempt: impl FnMut(Pages) -> Result<T>,
) -> Result<T> {
    for pages in choices {
        match attempt(pages) {
            Err(error) if smaller_pages_mend(error.kind()) => {}
            result => return result,
        }
    }
    attempt(last)
}

/// Smaller pages are more often free, begin at more addresses, and come to less when a size is rounded up.
const fn smaller_pages_mend(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::NoMemory | ErrorKind::NoAddresses | ErrorKind::LockLimit
    )
}

/// Options of [`Region::new`]: kind, NUMA node and locking of its pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionOptions {
    /// Choice of the page size; with [`Pages::Auto`] it depends on the size and on the free huge pages.
    pub pages: Pages,
    /// The NUMA node that they must come from; anywhere if none.
    pub node: Option<u32>,
    /// Whether base pages are locked. Those that are not may be moved or swapped, and no limit counts them:
    /// for memory that only this process and the kernel touch, and for domains that pin by themselves what
    /// they map.
    pub locked: bool,
}

impl Default for RegionOptions {
    fn default() -> Self {
        Self {
            pages: Pages::default(),
            node: None,
            locked: true,
        }
    }
}

/// Memory that is locked, unless the options say otherwise, shared through its descriptor.
///
/// All pages are allocated at the start, so that later accesses never fail. They start as zeros. The size of
/// the file is sealed: no holder of the descriptor can shrink or grow it. A child process shares
/// the pages and does not move them: the mapping is shared, not copied on write.
///
/// Base pages are locked and count against RLIMIT_MEMLOCK; huge pages are never swapped and do not count. Locked
/// pages stay in memory, but the kernel may move them within it: a [`Domain`](crate::Domain) prevents that while it
/// maps the region.
///
/// Linux 4.16 or later; the crate's page says what a region is elsewhere.
pub struct Region {
    backing: Backing,
    size: usize,
    page_size: usize,
}

// SAFETY: a region is an address and a descriptor; it hands out no reference to its bytes, so the callers that make
// references from the address answer for accesses by several threads.
unsafe impl Send for Region {}

// SAFETY: all methods with `&self` only read fields that never change before the drop.
unsafe impl Sync for Region {}

impl Region {
    /// A region of at least `size` bytes, rounded up to whole pages.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if the size is zero or too large, a page size is not a power of two, or the
    /// node does not exist; [`ErrorKind::NoMemory`] if not enough memory of this kind is available (the crate's page
    /// describes the check);
    /// [`ErrorKind::LockLimit`] if base pages may not be locked; [`ErrorKind::Refused`] for other failures of the
    /// kernel, and for options that a system other than Linux lacks.
    pub fn new(size: usize, options: &RegionOptions) -> Result<Self> {
        options.pages.first_that_serve(size, |pages| match pages {
            Pages::Huge(page_size) => Self::of_pages(size, Some(page_size), options),
            Pages::Base | Pages::Auto => Self::of_pages(size, None, options),
        })
    }

    fn of_pages(size: usize, huge: Option<usize>, options: &RegionOptions) -> Result<Self> {
        let page_size = huge.unwrap_or_else(base_page_size);
        let size = whole_pages(size, page_size)?;
        Ok(Self {
            backing: Backing::new(size, huge, options)?,
            size,
            page_size,
        })
    }

    /// Size in bytes: a multiple of [`Region::page_size`].
    #[must_use]
    pub const fn size(&self) -> usize {
        self.size
    }

    /// The size in bytes of the pages that it is made of.
    #[must_use]
    pub const fn page_size(&self) -> usize {
        self.page_size
    }

    /// Where it begins in this process: a multiple of [`Region::page_size`].
    #[must_use]
    pub const fn address(&self) -> NonNull<u8> {
        self.backing.address()
    }

    /// The memfd behind it, from offset 0 on, for another process that shares the memory. Its holder can change all
    /// bytes, and punch holes that read as zeros: pass it to trusted processes only.
    #[cfg(target_os = "linux")]
    #[must_use]
    pub fn file(&self) -> BorrowedFd<'_> {
        self.backing.file()
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region")
            .field("address", &self.address())
            .field("size", &self.size)
            .field("page_size", &self.page_size)
            .finish_non_exhaustive()
    }
}

/// The sizes of huge pages that [`Pages::Auto`] tries, the best first.
fn auto_sizes(size: usize, offered: &[HugePages]) -> impl Iterator<Item = usize> {
    offered.iter().filter_map(move |pages| {
        let rounded = whole_pages(size, pages.size).ok()?;
        let enough = (rounded / pages.size) as u64 <= pages.free;
        let waste = rounded - size;
        (enough && waste <= rounded / WASTE_DIVISOR).then_some(pages.size)
    })
}

fn whole_pages(size: usize, page_size: usize) -> Result<usize> {
    if !page_size.is_power_of_two() {
        let context = format!("pages of {page_size} bytes: a page size is a power of two");
        return Err(Error::new(ErrorKind::Invalid, context));
    }
    size.checked_next_multiple_of(page_size)
        .filter(|rounded| (1..=isize::MAX.unsigned_abs()).contains(rounded))
        .ok_or_else(|| Error::new(ErrorKind::Invalid, format!("memory of {size} bytes")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn auto(size: usize, offered: &[(usize, u64)]) -> Vec<usize> {
        let offered: Vec<HugePages> = offered
            .iter()
            .map(|&(size, free)| HugePages {
                size,
                total: free,
                free,
            })
            .collect();
        auto_sizes(size, &offered).collect()
    }

    #[test]
    fn auto_takes_the_largest_pages_that_are_free_and_waste_little() {
        const MIB: usize = 1 << 20;
        const GIB: usize = 1 << 30;
        let plenty = [(GIB, 9), (2 * MIB, 9000)];
        assert_eq!(auto(GIB, &plenty), [GIB, 2 * MIB]);
        // An eighth is left over, and a little more.
        assert_eq!(auto(GIB / 8 * 7, &plenty), [GIB, 2 * MIB]);
        assert_eq!(auto(GIB / 8 * 7 - 1, &plenty), [2 * MIB]);
        assert_eq!(auto(MIB, &plenty), [0_usize; 0]);
        assert_eq!(auto(GIB, &[(GIB, 0), (2 * MIB, 512)]), [2 * MIB]);
        assert_eq!(auto(GIB, &[(GIB, 0), (2 * MIB, 511)]), [0_usize; 0]);
        assert_eq!(auto(usize::MAX, &plenty), [0_usize; 0]);
        assert_eq!(auto(0, &plenty), [0_usize; 0]);
    }

    #[test]
    fn smaller_pages_are_tried_while_they_may_mend() {
        let choices = [Pages::Huge(1 << 30), Pages::Huge(2 << 20)];
        let tried = |kinds: &[Option<ErrorKind>]| {
            let (mut tried, mut kinds) = (Vec::new(), kinds.iter());
            let result = first_of(choices, Pages::Base, |pages| {
                tried.push(pages);
                match kinds.next().expect("no more than are told of") {
                    Some(kind) => Err(Error::new(*kind, "told to")),
                    None => Ok(pages),
                }
            });
            assert_eq!(
                result.as_ref().ok(),
                tried.last().filter(|_| result.is_ok())
            );
            (tried.len(), result.err().map(|error| error.kind()))
        };
        use ErrorKind::{Invalid, LockLimit, NoAddresses, NoMemory, Refused};
        assert_eq!(tried(&[None]), (1, None));
        assert_eq!(tried(&[Some(NoAddresses), None]), (2, None));
        assert_eq!(tried(&[Some(NoMemory), Some(NoAddresses), None]), (3, None));
        let all = [Some(NoMemory), Some(LockLimit), Some(NoAddresses)];
        assert_eq!(tried(&all), (3, Some(NoAddresses)));
        assert_eq!(tried(&[Some(Refused)]), (1, Some(Refused)));
        assert_eq!(tried(&[Some(LockLimit), Some(Invalid)]), (2, Some(Invalid)));
    }

    #[test]
    fn sizes_that_cannot_be_are_refused() {
        for (size, page_size) in [
            (0, 4096),
            (usize::MAX, 4096),
            (1 << 63, 4096),
            (1, 0),
            (1, 3),
        ] {
            let error = whole_pages(size, page_size).expect_err("refused");
            assert_eq!(error.kind(), ErrorKind::Invalid);
        }
        assert_eq!(whole_pages(1, 4096).expect("sound"), 4096);
        assert_eq!(whole_pages(4097, 4096).expect("sound"), 8192);
    }
}
