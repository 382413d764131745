//! The backend against a scripted kernel.

mod interrupts;

use std::collections::VecDeque;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use millrace_memory::{Domain, ErrorKind as MemoryErrorKind, Iova, Pages, Region, RegionOptions};
use proptest::prelude::*;
use rustix::io::Errno;
use tempfile::TempDir;
use vfio_bindings::bindings::vfio;

use super::script::{
    BAR_SIZE, Machine, PAGE, Script, VECTORS, list, region_info, type1_info, whole_bar,
};
use super::*;

/// Unmaps what a test has mapped.
fn unmap(domain: &dyn Domain, iova: Iova) -> millrace_memory::Result<()> {
    // SAFETY: the kernel is a script: there is no device.
    unsafe { domain.unmap(iova) }
}

const TYPE1: u32 = vfio::VFIO_TYPE1v2_IOMMU;
const SPAPR_V1: u32 = vfio::VFIO_SPAPR_TCE_IOMMU;
const SPAPR_V2: u32 = vfio::VFIO_SPAPR_TCE_v2_IOMMU;

/// A machine with the function 0000:01:00.0.
struct Fixture {
    root: TempDir,
    script: Arc<Script>,
    host: Host,
}

fn machine(extensions: &[u32]) -> Machine {
    Machine {
        extensions: extensions.to_vec(),
        ..Machine::default()
    }
}

fn touch(path: &Path) {
    let folder = path.parent().expect("a path in the fixture");
    fs::create_dir_all(folder).expect("the fixture can be written");
    fs::write(path, "").expect("the fixture can be written");
}

impl Fixture {
    /// A function that is bound to vfio-pci, in group 7.
    fn new(machine: Machine) -> Self {
        let root = tempfile::tempdir().expect("a temporary folder");
        let fixture = Self::at(root, machine);
        fixture.function("0000:01:00.0", Some("vfio-pci"));
        touch(&fixture.root.path().join("dev/vfio/7"));
        fixture
    }

    fn at(root: TempDir, machine: Machine) -> Self {
        let script = Arc::new(Script::new(machine));
        let host = Host {
            kernel: Arc::clone(&script) as Arc<dyn Kernel>,
            sys: Sysfs::new(root.path().join("sys")),
            dev: root.path().join("dev"),
        };
        Self { root, script, host }
    }

    fn sys(&self) -> PathBuf {
        self.root.path().join("sys")
    }

    /// Adds a function of group 7.
    fn function(&self, address: &str, driver: Option<&str>) {
        let folder = self.sys().join("bus/pci/devices").join(address);
        let group = self.sys().join("kernel/iommu_groups/7");
        touch(&folder.join("class"));
        touch(&group.join("devices").join(address));
        symlink(&group, folder.join("iommu_group")).expect("the fixture can be written");
        if let Some(driver) = driver {
            let driver = self.sys().join("bus/pci/drivers").join(driver);
            symlink(driver, folder.join("driver")).expect("the fixture can be written");
        }
    }

    fn link(&self, name: &str) -> PathBuf {
        self.sys().join("bus/pci/devices/0000:01:00.0").join(name)
    }

    /// Has the kernel offer a character device instead of the group.
    fn by_character_device(&self) {
        let dev = self.root.path().join("dev/vfio");
        fs::remove_file(dev.join("7")).expect("the group's file is there");
        touch(&dev.join("devices/vfio0"));
        touch(&self.link("vfio-dev/vfio0/dev"));
    }

    fn open(&self) -> Result<Arc<dyn Function>> {
        self.open_with(Options::default())
    }

    fn open_with(&self, options: Options) -> Result<Arc<dyn Function>> {
        self.host.open("01:00.0".parse()?, options)
    }

    /// Opens, where that must succeed.
    fn opened(&self) -> Arc<dyn Function> {
        self.open().expect("the script has what is needed")
    }

    fn refuse(&self, call: &'static str, errnos: &[Errno]) {
        let errnos = VecDeque::from(errnos.to_vec());
        self.script
            .with(|memory| memory.refuse.insert(call, errnos));
    }

    /// Nothing is mapped and nothing registered.
    fn is_clean(&self) -> bool {
        self.script
            .with(|memory| memory.mapped.is_empty() && memory.registered.is_empty())
    }
}

fn region(pages: usize) -> Arc<Region> {
    let options = RegionOptions {
        pages: Pages::Base,
        node: None,
        locked: true,
    };
    let size = pages * millrace_memory::base_page_size();
    Arc::new(Region::new(size, &options).expect("some pages can be locked"))
}

/// The text of an error with its causes.
fn told(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

fn failure(result: Result<Arc<dyn Function>>) -> (ErrorKind, String) {
    let error = result.expect_err("it must fail");
    (error.kind(), told(&error))
}

#[test]
fn a_function_is_opened_and_used() {
    let fixture = Fixture::new(machine(&[TYPE1]));
    let function = fixture.opened();
    let identity = function.identity().expect("configuration space answers");
    assert_eq!((identity.vendor, identity.device), (0x1b36, 0x10));
    assert_eq!((identity.class, identity.revision), (0x01_08_02, 2));
    assert!(function.is_present());
    assert_eq!(u32::from(function.vectors()), VECTORS);

    let bar = function.bar(0).expect("there is one");
    assert_eq!((bar.size(), bar.mapped()), (BAR_SIZE, BAR_SIZE));
    bar.store_long(0x28, 0x1122_3344_5566_7788)
        .expect("it is mapped");
    let half = bar.register(0x2c).and_then(|register| register.load());
    assert_eq!(half.ok(), Some(0x1122_3344));
    let other = function.bar(1).expect_err("there is one alone");
    assert_eq!(other.kind(), ErrorKind::OutOfRange);

    let mut beyond = [0; 8];
    let error = function.read_config(4090, &mut beyond);
    assert_eq!(
        error.map_err(|error| error.kind()),
        Err(ErrorKind::OutOfRange)
    );

    function.reset().expect("it can be reset");
    assert_eq!(fixture.script.with(|memory| memory.resets), 1);
}

#[test]
fn what_the_host_lacks_is_told_with_what_to_do() {
    let fixture = Fixture::at(tempfile::tempdir().expect("a folder"), machine(&[TYPE1]));
    assert_eq!(failure(fixture.open()).0, ErrorKind::NotFound);

    let fixture = Fixture::new(machine(&[TYPE1]));
    fs::remove_file(fixture.link("iommu_group")).expect("it is there");
    let (kind, text) = failure(fixture.open());
    assert_eq!(kind, ErrorKind::NoIommu);
    assert!(text.contains("intel_iommu=on"), "{text}");

    let fixture = Fixture::at(tempfile::tempdir().expect("a folder"), machine(&[TYPE1]));
    fixture.function("0000:01:00.0", Some("nvme"));
    let (kind, text) = failure(fixture.open());
    assert_eq!(kind, ErrorKind::InUse);
    assert!(
        text.contains("driven by nvme; `millrace nvme bind 0000:01:00.0`"),
        "{text}"
    );

    let fixture = Fixture::new(Machine {
        viable: false,
        ..machine(&[TYPE1])
    });
    fixture.function("0000:01:00.1", Some("xhci_hcd"));
    fixture.function("0000:00:1c.0", Some("pcieport"));
    fixture.function("0000:01:00.2", None);
    fixture.function("0000:01:00.3", Some("pci-stub"));
    fixture.function("0000:01:00.4", Some("mlx5_vfio_pci"));
    let (kind, text) = failure(fixture.open());
    assert_eq!(kind, ErrorKind::GroupNotViable);
    assert!(
        text.contains("also has 0000:01:00.1 (xhci_hcd); bind"),
        "{text}"
    );
}

/// The kernel lists a group for it nevertheless.
#[test]
fn a_group_without_iommu_is_told_from_a_kernel_without_one() {
    for by_character_device in [false, true] {
        let fixture = Fixture::new(machine(&[]));
        if by_character_device {
            fixture.by_character_device();
        }
        touch(&fixture.root.path().join("dev/vfio/noiommu-7"));
        let (kind, text) = failure(fixture.open());
        assert_eq!(kind, ErrorKind::NoIommu);
        assert!(text.contains("the group 7 of"), "{text}");
        assert!(text.contains("has no IOMMU; this driver needs"), "{text}");
        assert!(!text.contains("modprobe"), "{text}");
        assert_eq!(fixture.script.with(|memory| memory.calls.len()), 0);
    }
}

#[test]
fn what_the_kernel_refuses_is_told_with_what_to_do() {
    let rows = [
        ("open", Errno::ACCESS, ErrorKind::Permission, "chown"),
        (
            "open",
            Errno::BUSY,
            ErrorKind::InUse,
            "another function of the group",
        ),
        (
            "open",
            Errno::NOENT,
            ErrorKind::Unsupported,
            "modprobe vfio-pci",
        ),
        (
            "SetIommu",
            Errno::PERM,
            ErrorKind::NoInterruptRemapping,
            "allow_unsafe_interrupts",
        ),
        ("device", Errno::NODEV, ErrorKind::Gone, "0000:01:00.0"),
    ];
    for (call, errno, kind, text) in rows {
        let fixture = Fixture::new(machine(&[TYPE1]));
        fixture.refuse(call, &[errno]);
        let (told_kind, told) = failure(fixture.open());
        assert_eq!(told_kind, kind, "{told}");
        assert!(told.contains(text), "{told}");
        fixture.open().expect("it was refused once");
    }
    let (kind, text) = failure(Fixture::new(machine(&[])).open());
    assert_eq!(kind, ErrorKind::NoIommu);
    assert!(text.contains("modprobe vfio_iommu_type1"), "{text}");

    let fixture = Fixture::new(machine(&[SPAPR_V1]));
    fixture.refuse("IommuEnable", &[Errno::NOMEM]);
    let (kind, text) = failure(fixture.open());
    assert_eq!(kind, ErrorKind::LockLimit);
    assert!(text.contains("RLIMIT_MEMLOCK"), "{text}");
}

#[test]
fn another_attempt_is_made_when_the_kernel_asks_for_it() {
    let again = |again| {
        Fixture::new(Machine {
            again,
            ..machine(&[SPAPR_V2])
        })
    };
    again(3).opened();
    let (kind, _) = failure(again(u32::MAX).open());
    assert_eq!(kind, ErrorKind::Refused);
}

#[test]
fn the_best_interface_is_chosen_or_the_one_that_is_wanted() {
    let all = [SPAPR_V1, SPAPR_V2];
    let registers = |options| {
        let fixture = Fixture::new(machine(&all));
        let function = fixture.open_with(options).expect("both are offered");
        function.domain().map(&region(1)).expect("there is room");
        fixture
            .script
            .with(|memory| memory.calls.contains(&"RegisterMemory"))
    };
    let wanting = |iommu| Options {
        iommu: Some(iommu),
        ..Options::default()
    };
    assert!(registers(Options::default()));
    assert!(registers(wanting(Iommu::SpaprV2)));
    assert!(!registers(wanting(Iommu::SpaprV1)));
    let fixture = Fixture::new(machine(&all));
    let (kind, _) = failure(fixture.open_with(wanting(Iommu::Type1)));
    assert_eq!(kind, ErrorKind::Unsupported);
    let (kind, _) = failure(fixture.open_with(wanting(Iommu::Iommufd)));
    assert_eq!(kind, ErrorKind::Unsupported);
}

#[test]
fn character_devices_are_used_only_if_nothing_else_is_wanted() {
    let wanting = |iommu| Options {
        iommu,
        ..Options::default()
    };
    for iommu in [Iommu::Type1, Iommu::SpaprV1, Iommu::SpaprV2] {
        let fixture = Fixture::new(machine(&[TYPE1]));
        fixture.by_character_device();
        fixture.refuse("open", &[Errno::NOENT]);
        let (kind, text) = failure(fixture.open_with(wanting(Some(iommu))));
        assert_eq!(kind, ErrorKind::Unsupported, "{text}");
        let called = fixture
            .script
            .with(|memory| memory.calls.contains(&"BindIommufd"));
        assert!(!called);
    }
}

#[test]
fn a_bar_is_mapped_as_its_region_says() {
    let page = millrace_memory::base_page_size() as u64;
    let size = 4 * page;
    let sparse = |areas: &[(u64, u64)]| {
        let capability = (vfio::VFIO_REGION_INFO_CAP_SPARSE_MMAP, list(areas));
        region_info(0, 7, size, &[capability])
    };
    let unknown = (77, vec![1, 2, 3, 4]);
    let listed = (vfio::VFIO_REGION_INFO_CAP_SPARSE_MMAP, list(&[(0, page)]));
    let vectors = (vfio::VFIO_REGION_INFO_CAP_MSIX_MAPPABLE, Vec::new());
    // The region begins within a page of its file, and so that an area begins with one.
    let within_page = |areas: &[(u64, u64)]| {
        let mut info = sparse(areas);
        info[24..32].copy_from_slice(&8_u64.to_ne_bytes());
        info
    };
    let rows = [
        (whole_bar(), BAR_SIZE),
        (region_info(0, 3, size, &[]), 0),
        (region_info(0, 7, size, &[unknown]), size),
        (sparse(&[(0, page), (3 * page, page)]), 2 * page),
        // An area that begins within a page is reached by calls.
        (sparse(&[(0, page), (page + 8, page)]), page),
        (sparse(&[]), 0),
        // What the list leaves out is not mapped, whatever else is said.
        (region_info(0, 7, size, &[listed, vectors]), page),
        (within_page(&[(page - 8, page)]), 0),
        (within_page(&[]), 0),
    ];
    for (info, mapped) in rows {
        let mut machine = machine(&[TYPE1]);
        machine.regions.insert(0, info.clone());
        let function = Fixture::new(machine).opened();
        let bar = function.bar(0).expect("there is one");
        assert_eq!(bar.mapped(), mapped, "{info:?}");
        // Mapped or not, what is written is read, also across both.
        for offset in (0..bar.size()).step_by(4096) {
            bar.store_long(offset, offset | 1 << 63)
                .expect("it is there");
            assert_eq!(bar.load_long(offset).ok(), Some(offset | 1 << 63));
            let register = bar.register(offset + 4).expect("it is there");
            assert_eq!(register.load().ok(), Some(1 << 31));
            register.store_released(9).expect("it is there");
            assert_eq!(register.load().ok(), Some(9));
        }
        assert!(bar.register(bar.size()).is_err());
        assert!(bar.register(2).is_err());
    }
}

#[test]
fn a_device_that_does_not_answer_is_gone() {
    let mut machine = machine(&[TYPE1]);
    // Behind the end of the device's file nothing can be read.
    let mut info = region_info(0, 3, 4096, &[]);
    info[24..32].copy_from_slice(&(9_u64 << 40).to_ne_bytes());
    machine.regions.insert(0, info);
    let function = Fixture::new(machine).opened();
    let error = function.bar(0).and_then(|bar| bar.load_long(0));
    assert_eq!(error.map_err(|error| error.kind()), Err(ErrorKind::Gone));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever is said of a region leads to a function or to an error.
    #[test]
    fn any_region_is_a_bar_or_an_error(
        changes in proptest::collection::vec((0_usize..72, any::<u8>()), 0..6),
        cut in 0_usize..72,
    ) {
        let areas = [(0, PAGE), (PAGE, PAGE)];
        let capability = (vfio::VFIO_REGION_INFO_CAP_SPARSE_MMAP, list(&areas));
        let mut info = region_info(0, 7, BAR_SIZE, &[capability]);
        for (place, byte) in changes {
            if let Some(place) = info.get_mut(place) {
                *place = byte;
            }
        }
        let argument = {
            let mut argument = crate::argument::Argument::new(info.len());
            argument.put(0, &info);
            argument
        };
        if let Ok(region) = crate::region::Region::read(&argument) {
            for area in region.areas(PAGE) {
                prop_assert!(area.start < area.end && area.end <= region.size);
                prop_assert!(area.start % PAGE == 0 && region.offset % PAGE == 0);
            }
        }
        info.truncate(cut.max(4));
        let mut machine = machine(&[TYPE1]);
        machine.regions.insert(0, info);
        if let Err(error) = Fixture::new(machine).open() {
            prop_assert_eq!(error.kind(), ErrorKind::Protocol);
        }
    }

    /// Whatever is said of the address space leads to a function or to an error.
    #[test]
    fn any_address_space_is_one_or_an_error(
        changes in proptest::collection::vec((0_usize..90, any::<u8>()), 1..6),
    ) {
        let mut machine = machine(&[TYPE1]);
        for (place, byte) in changes {
            if let Some(place) = machine.type1.get_mut(place) {
                *place = byte;
            }
        }
        match Fixture::new(machine).open() {
            // What the kernel then makes of the addresses is its own affair.
            Ok(function) => drop(function.domain().map(&region(1))),
            Err(error) => prop_assert_eq!(error.kind(), ErrorKind::Protocol),
        }
    }
}

/// The interfaces that a domain can be of; none is a character device.
const INTERFACES: [Option<u32>; 5] = [
    Some(TYPE1),
    Some(vfio::VFIO_TYPE1_IOMMU),
    Some(SPAPR_V1),
    Some(SPAPR_V2),
    None,
];

fn fixture_of(interface: Option<u32>) -> Fixture {
    if let Some(interface) = interface {
        return Fixture::new(machine(&[interface]));
    }
    let fixture = Fixture::new(machine(&[]));
    fixture.by_character_device();
    fixture
}

/// What a test does to a domain.
#[derive(Clone, Debug)]
enum Deed {
    Map(usize),
    Unmap(prop::sample::Index),
}

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let deed = prop_oneof![
        3 => (1_usize..6).prop_map(Deed::Map),
        2 => any::<prop::sample::Index>().prop_map(Deed::Unmap),
    ];
    proptest::collection::vec(deed, 1..24)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// The script asserts what the kernel demands; here is what a caller may expect.
    #[test]
    fn what_is_mapped_is_what_was_asked_for(deeds in deeds()) {
        for fixture in INTERFACES.map(fixture_of) {
            let function = fixture.opened();
            let domain = function.domain();
            let mut mapped: Vec<(Iova, Arc<Region>)> = Vec::new();
            for deed in &deeds {
                match deed {
                    Deed::Map(pages) => {
                        let region = region(*pages);
                        mapped.push((domain.map(&region)?, region));
                    }
                    Deed::Unmap(index) if !mapped.is_empty() => {
                        let (iova, region) = mapped.swap_remove(index.index(mapped.len()));
                        prop_assert_eq!(Arc::strong_count(&region), 2);
                        unmap(&*domain, iova)?;
                        prop_assert_eq!(Arc::strong_count(&region), 1);
                        let again = unmap(&*domain, iova).map_err(|error| error.kind());
                        prop_assert_eq!(again, Err(MemoryErrorKind::NotMapped));
                    }
                    Deed::Unmap(_) => {}
                }
                let expected: std::collections::BTreeMap<u64, (u64, u64)> = mapped
                    .iter()
                    .map(|(iova, region)| {
                        let vaddr = region.address().as_ptr().addr() as u64;
                        (iova.0, (region.size() as u64, vaddr))
                    })
                    .collect();
                prop_assert_eq!(fixture.script.with(|memory| memory.mapped.clone()), expected);
                prop_assert!(mapped.iter().all(|(iova, _)| iova.0 != 0));
            }
            drop(domain);
            drop(function);
            prop_assert!(fixture.is_clean());
        }
    }
}

/// Each call of the way is refused once, for each reason: what comes of it is an error or what was asked
/// for, and nothing is left behind.
#[test]
fn a_refusal_anywhere_leaves_nothing_behind() {
    let reasons = [
        Errno::NOMEM,
        Errno::INVAL,
        Errno::NOSPC,
        Errno::NODEV,
        Errno::PERM,
    ];
    // Two of them, and all where seeds are named from outside.
    for errno in reasons.into_iter().step_by(millrace_fixtures::count(4, 1)) {
        for interface in INTERFACES {
            for refused in 0.. {
                let fixture = fixture_of(interface);
                fixture
                    .script
                    .with(|memory| memory.refuse_after = Some((refused, errno)));
                let Ok(function) = fixture.open() else {
                    continue;
                };
                let domain = function.domain();
                let (one, two) = (region(2), region(3));
                let maps = [domain.map(&one), domain.map(&two)];
                let succeeded = maps.iter().flatten().count();
                assert_eq!(fixture.script.with(|memory| memory.mapped.len()), succeeded);
                for iova in maps.iter().flatten() {
                    // Once more, if that is what was refused.
                    let unmapped = unmap(&*domain, *iova).or_else(|_| unmap(&*domain, *iova));
                    unmapped.expect("it is refused once");
                }
                assert!(fixture.script.with(|memory| memory.mapped.is_empty()));
                assert_eq!((Arc::strong_count(&one), Arc::strong_count(&two)), (1, 1));
                let again = domain.map(&one).and_then(|iova| unmap(&*domain, iova));
                assert!(again.is_ok() || refused > 0, "{again:?}");
                if fixture.script.with(|memory| memory.refuse_after.is_some()) {
                    // All calls were made before it came to this one.
                    break;
                }
            }
        }
    }
}

#[test]
fn a_refusal_to_lock_memory_says_how_to_raise_the_limit() {
    for (extension, call) in [(TYPE1, "MapDma"), (SPAPR_V2, "RegisterMemory")] {
        let fixture = Fixture::new(machine(&[extension]));
        fixture.refuse(call, &[Errno::NOMEM]);
        let domain = fixture.opened().domain();
        let error = domain.map(&region(1)).expect_err("it is refused");
        assert_eq!(error.kind(), MemoryErrorKind::LockLimit);
        assert!(error.to_string().contains("ulimit -l"), "{error}");
        domain.map(&region(1)).expect("it was refused once");
    }
}

/// A fixture of sPAPR v2 whose windows are as small as can be.
fn small_windows(machine: Machine) -> (Fixture, Arc<dyn Domain>) {
    let fixture = Fixture::new(Machine {
        extensions: vec![SPAPR_V2],
        ..machine
    });
    let options = Options {
        window_size: Some(1),
        ..Options::default()
    };
    let function = fixture
        .open_with(options)
        .expect("the script has what is needed");
    (fixture, function.domain())
}

/// Maps until there is no place left; returns where.
fn fill(domain: &Arc<dyn Domain>, pages: usize) -> Vec<Iova> {
    let mut iovas = Vec::new();
    loop {
        match domain.map(&region(pages)) {
            Ok(iova) => iovas.push(iova),
            Err(error) => {
                assert_eq!(error.kind(), MemoryErrorKind::NoAddresses);
                return iovas;
            }
        }
    }
}

fn count(fixture: &Fixture, name: &str) -> usize {
    let calls = fixture.script.with(|memory| memory.calls.clone());
    calls.iter().filter(|call| **call == name).count()
}

/// So many base pages are more than a default window of 64 KiB has.
const MANY: usize = 64;

#[test]
fn a_default_window_that_is_too_small_makes_way() {
    let (fixture, domain) = small_windows(Machine {
        default_window: (0, 64 << 10),
        ..Machine::default()
    });
    let iovas = fill(&domain, MANY);
    assert_eq!(count(&fixture, "RemoveWindow"), 1);
    // Two windows were made, and there was an attempt that found no place.
    assert_eq!(count(&fixture, "CreateWindow"), 3);
    assert!(iovas.iter().any(|iova| iova.0 >= 0x800_0000_0000_0000));
    assert!(iovas.iter().any(|iova| iova.0 < 1 << 40 && iova.0 > 0));
    for iova in iovas {
        unmap(&*domain, iova).expect("it is mapped");
    }
    assert!(fixture.is_clean());
}

#[test]
fn a_default_window_that_is_used_stays() {
    let page = millrace_memory::base_page_size();
    let (fixture, domain) = small_windows(Machine {
        default_window: (0, 4 * u32::try_from(page).expect("pages are small")),
        window_size_max: 0,
        ..Machine::default()
    });
    let first = domain.map(&region(1)).expect("the default window has room");
    assert!(first.0 < 4 * page as u64);
    assert!(domain.map(&region(MANY)).is_err());
    assert_eq!(count(&fixture, "RemoveWindow"), 0);
    domain.map(&region(1)).expect("the default window has room");
}

#[test]
fn a_default_window_is_had_back_if_nothing_can_take_its_place() {
    let (fixture, domain) = small_windows(Machine {
        default_window: (0, 1 << 20),
        // Larger windows are refused, and there is no place for another.
        window_size_max: 1 << 20,
        window_starts: vec![0],
        ..Machine::default()
    });
    let too_many = (2 << 20) / millrace_memory::base_page_size();
    assert!(domain.map(&region(too_many)).is_err());
    assert_eq!(count(&fixture, "RemoveWindow"), 1);
    let iova = domain.map(&region(1)).expect("it is there again");
    assert!(iova.0 < 1 << 20);
}

#[test]
fn a_window_is_made_smaller_or_with_more_levels_if_need_be() {
    for (window_size_max, levels_needed) in [(1 << 30, 1), (64 << 30, 4), (1 << 30, 5)] {
        let fixture = Fixture::new(Machine {
            extensions: vec![SPAPR_V2],
            window_size_max,
            levels_needed,
            ..Machine::default()
        });
        let iova = fixture
            .opened()
            .domain()
            .map(&region(1))
            .expect("a window can be made");
        assert!(iova.0 >= 0x800_0000_0000_0000, "{iova}");
    }
}

#[test]
fn a_window_without_memory_for_its_table_is_a_matter_of_the_limit_if_that_is_low() {
    let refused = |lock_room, levels_needed| {
        let fixture = Fixture::new(Machine {
            extensions: vec![SPAPR_V2],
            default_window: (0, 0),
            levels_needed,
            lock_room,
            ..Machine::default()
        });
        let error = fixture.opened().domain().map(&region(1));
        error.expect_err("no window")
    };
    let error = refused(Some(15), 1);
    assert_eq!(error.kind(), MemoryErrorKind::LockLimit);
    assert!(error.to_string().contains("RLIMIT_MEMLOCK"), "{error}");
    for lock_room in [None, Some(1 << 30)] {
        let error = refused(lock_room, u32::MAX);
        assert_eq!(error.kind(), MemoryErrorKind::NoAddresses);
        assert!(
            error.to_string().contains("KiB of a new window's table"),
            "{error}"
        );
    }
}

#[test]
fn windows_that_overlap_are_not_used() {
    let (fixture, domain) = small_windows(Machine {
        default_window: (0, 0),
        window_starts: vec![0x10_0000, 0x10_0000],
        ..Machine::default()
    });
    let taken = fill(&domain, MANY);
    assert!(!taken.is_empty());
    assert_eq!(
        fixture.script.with(|memory| memory.mapped.len()),
        taken.len()
    );
}

#[test]
fn a_character_device_takes_the_place_of_the_group() {
    let fixture = Fixture::new(Machine {
        // More than are asked for at first.
        iommufd_ranges: (1..40).map(|n| (n << 20, (n << 20) + 0xffff)).collect(),
        ..machine(&[])
    });
    fixture.by_character_device();
    let function = fixture.opened();
    assert!(function.is_present());
    let iova = function.domain().map(&region(16)).expect("there is room");
    assert_eq!(iova.0 % PAGE, 0);

    let fixture = Fixture::new(Machine {
        iommufd_ranges: vec![(0, 1); 5000],
        ..machine(&[])
    });
    fixture.by_character_device();
    assert_eq!(failure(fixture.open()).0, ErrorKind::Protocol);
}

/// The kernel says EPERM for a driver in the group, for another owner, and for interrupts that can be forged.
#[test]
fn what_an_iommufd_does_not_permit_is_told_by_who_is_in_the_group() {
    let refused = || {
        let fixture = Fixture::new(machine(&[]));
        fixture.by_character_device();
        fixture.refuse("BindIommufd", &[Errno::PERM]);
        fixture
    };
    let fixture = refused();
    fixture.function("0000:01:00.1", Some("xhci_hcd"));
    let (kind, text) = failure(fixture.open());
    assert_eq!(kind, ErrorKind::GroupNotViable);
    assert!(
        text.contains("also has 0000:01:00.1 (xhci_hcd); bind"),
        "{text}"
    );

    let fixture = refused();
    fixture.function("0000:01:00.1", Some("vfio-pci"));
    let (kind, text) = failure(fixture.open());
    assert_eq!(kind, ErrorKind::NoInterruptRemapping);
    assert!(text.contains("forge interrupts"), "{text}");
    assert!(text.contains("another process has a function"), "{text}");
}

#[test]
fn ranges_that_cannot_be_are_refused() {
    let fixture = Fixture::new(Machine {
        type1: type1_info(PAGE, &[(0x2000, 0x1000)]),
        ..machine(&[TYPE1])
    });
    assert_eq!(failure(fixture.open()).0, ErrorKind::Protocol);
}
