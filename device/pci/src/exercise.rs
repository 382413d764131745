//! What is done with bytes of unknown origin, for fuzz targets and for tests: nothing may panic, and what is
//! accepted must be as documented.

use millrace_memory::IovaSpace;

use crate::argument::Argument;
use crate::region::Region;
use crate::vfio;

/// Page sizes of hosts.
const PAGE_SIZES: [u64; 3] = [4 << 10, 16 << 10, 64 << 10];

/// Decodes the bytes as VFIO's description of a region, and of an address space.
///
/// # Panics
/// If a decoded value violates an invariant.
pub fn described(bytes: &[u8]) {
    let argument = Argument::from(bytes.to_vec());
    if let Ok(region) = Region::read(&argument) {
        check_region(&region);
    }
    for page_size in PAGE_SIZES {
        if let Ok((ranges, granule)) = vfio::address_space(&argument, page_size) {
            assert!(granule.is_power_of_two(), "pages of {granule} bytes");
            // The space may refuse ranges.
            drop(IovaSpace::new(ranges, granule));
        }
    }
}

fn check_region(region: &Region) {
    let end = region.offset.checked_add(region.size);
    assert!(end.is_some(), "it ends in its file");
    let sparse = region.sparse.iter().flatten();
    assert!(sparse.clone().all(|area| area.end <= region.size));
    assert!(sparse.clone().is_sorted_by(|a, b| a.end <= b.start));
    for page_size in PAGE_SIZES {
        for area in region.areas(page_size) {
            assert!(area.start < area.end && area.end <= region.size);
            assert!(area.start % page_size == 0 && region.offset % page_size == 0);
        }
    }
}

#[cfg(feature = "vfio-user")]
pub use crate::vfio_user::exercise::served;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
    use vfio_bindings::bindings::vfio::{
        VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE as RANGES, VFIO_REGION_INFO_CAP_SPARSE_MMAP as SPARSE,
    };

    use super::*;

    /// Runs a fixed sequence of generated cases.
    fn run<S: Strategy<Value = Vec<u8>>>(cases: u32, bytes: &S, take: fn(&[u8])) {
        let config = ProptestConfig {
            cases,
            failure_persistence: None,
            ..ProptestConfig::default()
        };
        let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
        let ran = TestRunner::new_with_rng(config, rng).run(bytes, |bytes| {
            take(&bytes);
            Ok(())
        });
        ran.unwrap_or_else(|failure| panic!("{failure}"));
    }

    fn any_bytes(size: usize) -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(any::<u8>(), 0..size)
    }

    /// A short run of the fuzz target `pci_described`.
    #[test]
    fn anything_may_be_described() {
        run(500, &any_bytes(200), described);
        // Structures with one capability, which is a list of two, and a few bytes that are others.
        let whole = |fixed: usize, id: u32| {
            let mut bytes = vec![0; fixed + 48];
            let first = u32::try_from(fixed).expect("it is short");
            let place = if fixed == 32 { 12 } else { 16 };
            bytes[4..8].copy_from_slice(&0xf_u32.to_ne_bytes());
            bytes[place..place + 4].copy_from_slice(&first.to_ne_bytes());
            bytes[fixed..fixed + 4].copy_from_slice(&(id | 1 << 16).to_ne_bytes());
            bytes[fixed + 8..fixed + 12].copy_from_slice(&2_u32.to_ne_bytes());
            for (word, value) in [0, 0x1000, 0x2000, 0x3000_u64].iter().enumerate() {
                let place = fixed + 16 + word * 8;
                bytes[place..place + 8].copy_from_slice(&value.to_ne_bytes());
            }
            bytes
        };
        let mut region = whole(32, SPARSE);
        region[16..24].copy_from_slice(&0x6000_u64.to_ne_bytes());
        assert!(
            Region::read(&Argument::from(region.clone())).is_ok_and(|read| {
                let areas = read.sparse.as_ref();
                areas.is_some_and(|areas| areas.len() == 2)
            })
        );
        let space = whole(24, RANGES);
        let read = vfio::address_space(&Argument::from(space.clone()), 4096);
        assert!(read.is_ok_and(|(ranges, _)| ranges.len() == 2));
        let changes = prop::collection::vec((0_usize..80, any::<u8>()), 0..6);
        let changed = (prop::sample::select(vec![region, space]), changes).prop_map(
            |(mut bytes, changes)| {
                for (place, byte) in changes {
                    if let Some(place) = bytes.get_mut(place) {
                        *place = byte;
                    }
                }
                bytes
            },
        );
        run(2000, &changed, described);
    }

    /// A short run of the fuzz target `pci_served`.
    #[cfg(feature = "vfio-user")]
    #[test]
    fn anything_may_be_served() {
        run(300, &any_bytes(300), served);
        // Whole answers up to one that is anything.
        let by_the_book = (0_usize..24, any_bytes(120));
        let mostly = by_the_book.prop_map(|(answers, rest)| [vec![0; answers], rest].concat());
        run(500, &mostly, served);
    }
}
