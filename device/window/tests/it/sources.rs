//! Where windows come from, and which files are refused.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex};

use millrace_memory::{Pages, RegionOptions};
use millrace_pci::{Bar, RegisterFile};
use millrace_window::{Attributes, Direction, ErrorKind, EventDoorbell, RegisterDoorbell, Window};
use rustix::fs::{MemfdFlags, Mode, SealFlags, fchmod, fcntl_add_seals, ftruncate, memfd_create};

const OPTIONS: RegionOptions = RegionOptions {
    pages: Pages::Base,
    node: None,
    locked: false,
};

fn memfd(size: u64, seals: SealFlags, mode: u32) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = memfd_create("window", flags).expect("a file can be made");
    ftruncate(&file, size).expect("it can grow");
    fchmod(&file, Mode::from_raw_mode(mode)).expect("its own");
    fcntl_add_seals(&file, seals).expect("it can be sealed");
    file
}

fn kind<T: std::fmt::Debug>(result: millrace_window::Result<T>) -> ErrorKind {
    result.expect_err("refused").kind()
}

#[test]
fn shared_memory_is_private_and_keeps_its_size() {
    let (ours, file) = Window::create(5000, &OPTIONS).expect("memory is there");
    let size = ours.size() as u64;
    assert!(size >= 5000 && size % rustix::param::page_size() as u64 == 0);
    assert_eq!(ours.attributes(), Attributes::SHARED_MEMORY);
    let status = rustix::fs::fstat(&file).expect("it is open");
    assert_eq!(status.st_mode & 0o777, 0o600);
    assert!(ftruncate(&file, 0).is_err());
    assert!(ftruncate(&file, size - 1).is_err());
    assert!(ftruncate(&file, size + 1).is_err());

    let theirs = Window::attach(&file).expect("made for it");
    assert_eq!(theirs.size() as u64, size);
    drop(file);
    let mut outgoing = ours.outgoing(0..1024).expect("free");
    let incoming = theirs.incoming(0..1024).expect("free");
    drop((ours, theirs));
    outgoing.slot(960, 64).expect("within").publish(5);
    assert_eq!(incoming.poll(960).expect("within").word(), 5);
}

#[test]
fn files_that_could_shrink_are_refused() {
    let attach = |file: &dyn AsFd| kind(Window::attach(file.as_fd()));
    let regular = tempfile::tempfile().expect("a file can be made");
    regular.set_len(4096).expect("it can grow");
    assert_eq!(attach(&regular), ErrorKind::Unsafe);
    assert_eq!(
        attach(&memfd(4096, SealFlags::empty(), 0o600)),
        ErrorKind::Unsafe
    );
    assert_eq!(
        attach(&memfd(4096, SealFlags::GROW, 0o600)),
        ErrorKind::Unsafe
    );
    let null = File::open("/dev/null").expect("it is everywhere");
    assert_eq!(attach(&null), ErrorKind::Unsafe);
}

#[test]
fn files_that_others_may_open_are_refused() {
    for mode in [0o777, 0o660, 0o604, 0o601] {
        let file = memfd(4096, SealFlags::SHRINK, mode);
        assert_eq!(kind(Window::attach(&file)), ErrorKind::Unsafe);
    }
    Window::attach(memfd(4096, SealFlags::SHRINK, 0o600)).expect("private");
}

#[test]
fn files_of_no_size_and_of_no_write_are_refused() {
    let empty = memfd(0, SealFlags::SHRINK, 0o600);
    assert_eq!(kind(Window::attach(&empty)), ErrorKind::OutOfRange);
    let read_only = memfd(4096, SealFlags::SHRINK | SealFlags::WRITE, 0o600);
    assert_eq!(kind(Window::attach(&read_only)), ErrorKind::Permission);
}

#[test]
fn only_files_of_sysfs_are_resources() {
    let open = |path: &Path| kind(Window::open_resource(path, Direction::Both));
    let folder = tempfile::tempdir().expect("a folder can be made");
    let path = folder.path().join("resource2_wc");
    assert_eq!(open(&path), ErrorKind::NotFound);
    let file = File::create(&path).expect("a file can be made");
    file.set_len(4096).expect("it can grow");
    assert_eq!(open(&path), ErrorKind::Unsafe);
}

#[test]
fn only_devices_with_a_size_are_dax() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let path = folder.path().join("dax0.0");
    assert_eq!(kind(Window::open_dax(&path, true)), ErrorKind::NotFound);
    File::create(&path).expect("a file can be made");
    assert_eq!(kind(Window::open_dax(&path, true)), ErrorKind::Unsafe);
    let null = Path::new("/dev/null");
    assert_eq!(kind(Window::open_dax(null, true)), ErrorKind::Unsupported);
}

#[test]
fn an_eventfd_is_rung() {
    let flags = rustix::event::EventfdFlags::NONBLOCK;
    let event = rustix::event::eventfd(0, flags).expect("a descriptor is left");
    let peer = event.try_clone().expect("a descriptor is left");
    let (window, _) = Window::create(4096, &OPTIONS).expect("memory is there");
    let window = window.with_doorbell(Arc::new(EventDoorbell::new(event)));
    assert!(window.has_doorbell());
    window.ring().expect("it is open");
    window.ring().expect("it is open");
    let mut count = [0; 8];
    rustix::io::read(&peer, &mut count).expect("it was rung");
    assert_eq!(u64::from_ne_bytes(count), 2);
    // Full: it is readable, which is all that a peer needs.
    rustix::io::write(&peer, &(u64::MAX - 1).to_ne_bytes()).expect("room");
    window.ring().expect("as good as rung");
}

/// Registers that are reached by calls.
#[derive(Debug, Default)]
struct Registers(Mutex<Vec<(u64, u32)>>);

impl RegisterFile for Registers {
    fn load(&self, _: u64) -> millrace_pci::Result<u32> {
        Ok(0)
    }

    fn store(&self, offset: u64, value: u32) -> millrace_pci::Result<()> {
        self.0.lock().expect("no panic").push((offset, value));
        Ok(())
    }
}

#[test]
fn a_register_is_rung() {
    let registers = Arc::new(Registers::default());
    let bar = Bar::new(256, Vec::new(), registers.clone());
    let register = bar.register(12).expect("within");
    let doorbell = RegisterDoorbell::new(register, 3 << 16 | 1);
    let (window, _) = Window::create(4096, &OPTIONS).expect("memory is there");
    window
        .with_doorbell(Arc::new(doorbell))
        .ring()
        .expect("rung");
    assert_eq!(*registers.0.lock().expect("no panic"), [(12, 3 << 16 | 1)]);
}

mod bar {
    use std::ptr::NonNull;
    use std::sync::atomic::AtomicU64;

    use millrace_pci::MappedArea;
    use millrace_window::Cacheability;

    use super::*;

    /// Words at a multiple of a page.
    #[derive(Debug)]
    #[repr(align(4096))]
    struct Page([AtomicU64; 512]);

    #[test]
    fn the_mapped_bytes_of_a_bar_are_a_window() {
        let page = Arc::new(Page([const { AtomicU64::new(0) }; 512]));
        let first = NonNull::from(&page.0).cast::<u8>();
        // SAFETY: the page lives as long as its last share, and is accessed atomically alone below.
        let area = unsafe { MappedArea::new(4096..8192, first, page.clone()) };
        let bar = Bar::new(8192, vec![area], Arc::new(Registers::default()));
        let attributes = Attributes {
            cacheability: Cacheability::Uncached,
            coherent: true,
            direction: Direction::Stores,
        };
        let open = |range| {
            // SAFETY: nobody uses registers of this bar.
            unsafe { Window::on_bar(&bar, range, attributes) }
        };
        let reversed = std::ops::Range {
            start: 6000,
            end: 5000,
        };
        for range in [0..4096, 4000..5000, 4096..8193, 0..u64::MAX, reversed] {
            assert_eq!(kind(open(range)), ErrorKind::Unsupported);
        }
        assert_eq!(kind(open(4104..8192)), ErrorKind::OutOfRange);
        assert_eq!(kind(open(4096..4096)), ErrorKind::OutOfRange);
        let window = open(4352..8192).expect("mapped");
        assert_eq!((window.size(), window.attributes()), (3840, attributes));
        drop(bar);
        let mut outgoing = window.outgoing(0..128).expect("free");
        outgoing.slot(64, 64).expect("within").publish(9);
        let word = &page.0[(256 + 64) / 8];
        assert_eq!(word.load(std::sync::atomic::Ordering::Relaxed), 9);
    }
}
