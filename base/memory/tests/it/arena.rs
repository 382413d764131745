//! Arenas beside a model, on several threads, and what devices see of them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;

use crate::recorder::Recorder;
use crate::spare_huge_pages::{SpareHugePages, say};
use millrace_memory::{
    Arena, ArenaOptions, Buffer, DeviceMemory, DeviceWords, Domain, ErrorKind, Exhausted, Iova,
    NoDevice, Pages, Region, SizeClass, base_page_size,
};
use proptest::prelude::*;

fn arena_of(domain: &Arc<Recorder>, classes: &[(usize, u32)]) -> Arena {
    let class = |&(size, count): &(usize, u32)| SizeClass { size, count };
    let options = ArenaOptions {
        classes: classes.iter().map(class).collect(),
        pages: Pages::Base,
        node: None,
        locked: true,
    };
    Arena::new(domain.clone(), &options).expect("there is memory")
}

#[derive(Clone, Debug)]
enum Step {
    Take(usize),
    Drop(prop::sample::Index),
    SetLen(prop::sample::Index, usize),
    SetRange(prop::sample::Index, usize, usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0..20_000_usize).prop_map(Step::Take),
        2 => any::<prop::sample::Index>().prop_map(Step::Drop),
        1 => (any::<prop::sample::Index>(), 0..20_000_usize)
            .prop_map(|(which, len)| Step::SetLen(which, len)),
        2 => (any::<prop::sample::Index>(), 0..20_000_usize, 0..20_000_usize)
            .prop_map(|(which, start, end)| Step::SetRange(which, start, end)),
    ];
    prop::collection::vec(step, 0..if cfg!(miri) { 12 } else { 120 })
}

/// Binary logarithms of blocks' sizes. miri takes its time with each byte.
const SIZES: Range<u32> = if cfg!(miri) { 6..9 } else { 6..15 };

fn classes() -> impl Strategy<Value = Vec<(usize, u32)>> {
    let counts = prop::collection::btree_map(SIZES, 1..6_u32, 1..5);
    counts.prop_map(|counts: BTreeMap<u32, u32>| {
        let class = |(exponent, count)| (1_usize << exponent, count);
        counts.into_iter().map(class).collect()
    })
}

/// How many blocks of each size are free.
struct Model(BTreeMap<usize, u32>);

impl Model {
    fn take(&mut self, len: usize) -> Result<usize, Exhausted> {
        let len_max = *self.0.keys().next_back().expect("there are classes");
        if len > len_max {
            return Err(Exhausted::TooLarge { len_max });
        }
        let fitting = self.0.range_mut(len..).find(|(_, free)| **free > 0);
        let (size, free) = fitting.ok_or(Exhausted::InUse)?;
        *free -= 1;
        Ok(*size)
    }
}

/// A buffer, the byte that it was filled with, and where its block begins for devices and the process.
struct Held {
    buffer: Buffer,
    mark: u8,
    block: (u64, usize),
}

impl Held {
    fn new(mut buffer: Buffer, mark: u8) -> Self {
        buffer.fill(mark);
        let block = (buffer.iova().0, buffer.as_ptr() as usize);
        Self {
            buffer,
            mark,
            block,
        }
    }

    fn check(&self) {
        assert!(self.buffer.iter().all(|byte| *byte == self.mark));
        let range = self.buffer.range();
        assert!(range.end <= self.buffer.capacity());
        assert_eq!(range.len(), self.buffer.len());
        assert_eq!(self.buffer.iova().0, self.block.0 + range.start as u64);
        assert_eq!(self.buffer.as_ptr() as usize, self.block.1 + range.start);
    }

    /// Sets a range by either call and checks the answer.
    fn set(&mut self, start: usize, end: usize, set: impl FnOnce(&mut Buffer) -> bool) {
        let before = self.buffer.range();
        let fits = start <= end && end <= self.buffer.capacity();
        assert_eq!(set(&mut self.buffer), fits);
        assert_eq!(self.buffer.range(), if fits { start..end } else { before });
        self.buffer.fill(self.mark);
    }
}

fn matches_the_model(classes: &[(usize, u32)], steps: &[Step]) {
    let domain = Recorder::new();
    let arena = arena_of(&domain, classes);
    let first = arena.iova().0;
    let end = first + arena.region().size() as u64;
    let page_size = arena.region().page_size();
    let mut model = Model(classes.iter().copied().collect());
    let mut held: Vec<Held> = Vec::new();
    let mut mark = 0_u8;
    for step in steps {
        match step {
            Step::Take(len) => match (arena.try_buffer(*len), model.take(*len)) {
                (Ok(buffer), Ok(size)) => {
                    assert_eq!((buffer.len(), buffer.capacity()), (*len, size));
                    let iova = buffer.iova().0;
                    assert!(first <= iova && iova + size as u64 <= end);
                    let align = size.min(page_size);
                    assert_eq!(iova % align as u64, 0);
                    assert_eq!(buffer.as_ptr() as usize % align, 0);
                    // What lies next to each other for the one does for the other.
                    let address = buffer.as_ptr() as u64;
                    let begin = arena.region().address().as_ptr() as u64;
                    assert_eq!(iova - first, address - begin);
                    mark = mark.wrapping_add(1);
                    held.push(Held::new(buffer, mark));
                }
                (Err(own), Err(expected)) => assert_eq!(own, expected),
                (own, expected) => panic!("{own:?} instead of {expected:?}"),
            },
            Step::Drop(which) if !held.is_empty() => {
                let one = held.swap_remove(which.index(held.len()));
                one.check();
                *model.0.get_mut(&one.buffer.capacity()).expect("a class") += 1;
            }
            Step::SetLen(which, len) if !held.is_empty() => {
                let at = which.index(held.len());
                let one = &mut held[at];
                let start = one.buffer.range().start;
                one.set(start, start + len, |buffer| buffer.set_len(*len).is_ok());
            }
            Step::SetRange(which, start, end) if !held.is_empty() => {
                let at = which.index(held.len());
                held[at].set(*start, *end, |buffer| {
                    buffer.set_range(*start..*end).is_ok()
                });
            }
            Step::Drop(_) | Step::SetLen(..) | Step::SetRange(..) => {}
        }
        held.iter().for_each(Held::check);
    }
    // Everything can be given back and taken again.
    held.clear();
    let blocks: u32 = classes.iter().map(|(_, count)| count).sum();
    let all: Vec<Buffer> = std::iter::from_fn(|| arena.try_buffer(0).ok()).collect();
    assert_eq!(all.len(), blocks as usize);
    drop(arena);
    assert_eq!(domain.mapped_count(), 1);
    drop(all);
    assert_eq!(domain.mapped_count(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 64 }))]

    #[test]
    fn an_arena_matches_the_model(classes in classes().prop_shuffle(), steps in steps()) {
        matches_the_model(&classes, &steps);
    }
}

#[test]
fn a_range_can_be_narrowed_and_widened_again() {
    let arena = arena_of(&Recorder::new(), &[(4096, 1)]);
    let mut buffer = arena.try_buffer(4096).expect("free");
    let iova = buffer.iova().0;
    for (at, byte) in buffer.iter_mut().enumerate() {
        *byte = u8::try_from(at / 512).expect("eight of them");
    }
    buffer.set_range(512..1536).expect("within");
    assert_eq!((buffer.len(), buffer.iova().0), (1024, iova + 512));
    assert_eq!((buffer[0], buffer[1023]), (1, 2));
    buffer.set_len(3584).expect("up to the end of the block");
    assert_eq!((buffer.range(), buffer[3583]), (512..4096, 7));
    for (start, end) in [(0, 4097), (512, 511), (4097, 4097), (0, usize::MAX)] {
        let error = buffer.set_range(start..end).expect_err("no such range");
        assert_eq!(error.kind(), ErrorKind::Invalid);
    }
    assert!(buffer.set_len(3585).is_err() && buffer.set_len(usize::MAX).is_err());
    assert_eq!(buffer.range(), 512..4096);
    buffer.set_range(4096..4096).expect("nothing is within");
    assert!(buffer.is_empty());
    buffer.set_range(0..4096).expect("all of it");
    assert_eq!(buffer.iova().0, iova);
    buffer.set_range(64..128).expect("within");
    drop(buffer);
    let buffer = arena.try_buffer(1).expect("free again");
    assert_eq!((buffer.iova().0, buffer.range()), (iova, 0..1));
}

#[test]
fn memory_of_no_device_has_the_addresses_of_the_process() {
    let options = ArenaOptions {
        classes: vec![SizeClass { size: 64, count: 1 }],
        pages: Pages::Base,
        locked: false,
        ..ArenaOptions::default()
    };
    let arena = |domain| Arena::new(domain, &options).expect("there is memory");
    let (one, two) = (arena(NoDevice::shared()), arena(NoDevice::shared()));
    let other = arena(Arc::new(NoDevice::default()));
    let buffers = [&one, &two, &other].map(|arena| arena.try_buffer(64).expect("free"));
    for buffer in &buffers {
        assert_eq!(buffer.iova().0, buffer.as_ptr() as u64);
    }
    let domains = buffers.each_ref().map(Buffer::domain);
    assert_eq!(domains[0], domains[1]);
    assert_ne!(domains[0], domains[2]);
}

#[test]
fn the_default_is_of_use() {
    let _spare = SpareHugePages::new("the default is of use", 2 << 20, 2, None);
    let domain = Recorder::new();
    let options = ArenaOptions::default();
    let total: usize = options
        .classes
        .iter()
        .map(|class| class.size * class.count as usize)
        .sum();
    assert_eq!(total, 4 << 20);
    let arena = Arena::new(domain, &options).expect("there is memory");
    assert_eq!(arena.len_max(), 1 << 20);
    assert_eq!(arena.region().size(), total);
    let buffer = arena.try_buffer(4096).expect("free");
    assert!(buffer.iter().all(|byte| *byte == 0), "new memory is zero");
}

#[test]
fn blocks_on_huge_pages_are_aligned_to_their_size() {
    let huge = 2 << 20;
    let test = "blocks on huge pages are aligned";
    let Some(_spare) = SpareHugePages::new(test, huge, 2, None) else {
        return;
    };
    let options = ArenaOptions {
        pages: Pages::Huge(huge),
        ..ArenaOptions::default()
    };
    match Arena::new(Recorder::new(), &options) {
        // Others may take the last free page at any time.
        Err(error) if error.kind() == ErrorKind::NoMemory => say(&format!("skipped: {error}")),
        Err(error) => panic!("{error}"),
        Ok(arena) => {
            assert_eq!(arena.iova().0 % huge as u64, 0);
            let all: Vec<Buffer> = std::iter::from_fn(|| arena.try_buffer(0).ok()).collect();
            assert_eq!(all.len(), 256 + 16 + 2);
            for buffer in &all {
                assert_eq!(buffer.iova().0 % buffer.capacity() as u64, 0);
                assert_eq!(buffer.as_ptr() as usize % buffer.capacity(), 0);
            }
        }
    }
}

/// Addresses that two huge pages do not fit into, as they begin at a multiple of their size.
#[test]
fn smaller_pages_are_tried_where_larger_ones_find_no_addresses() {
    /// Also writes down of which pages the regions are that it is to map.
    #[derive(Debug)]
    struct Narrow(Arc<Recorder>, Mutex<Vec<usize>>);
    impl Domain for Narrow {
        fn map(&self, region: &Arc<Region>) -> millrace_memory::Result<Iova> {
            let mut asked = self.1.lock().expect("no thread panics with it");
            asked.push(region.page_size());
            self.0.map(region)
        }
        unsafe fn unmap(&self, iova: Iova) -> millrace_memory::Result<()> {
            // SAFETY: the caller keeps the same promise.
            unsafe { self.0.unmap(iova) }
        }
    }
    let (huge, base) = (2 << 20, base_page_size());
    let test = "smaller pages are tried";
    let spare = SpareHugePages::new(test, huge, 2, None);
    let narrow = |last| {
        let within = Recorder::within(base as u64, last);
        Arc::new(Narrow(within, Mutex::default()))
    };
    let asked_of = |domain: &Narrow| domain.1.lock().expect("no thread panics with it").clone();

    let domain = narrow((5 << 20) - 1);
    let arena = Arena::new(domain.clone(), &ArenaOptions::default()).expect("base pages fit");
    assert_eq!(arena.region().page_size(), base);
    let asked = asked_of(&domain);
    assert_eq!(asked.last(), Some(&base));
    if spare.is_some() && asked.first() != Some(&huge) {
        say(&format!("{test}: skipped: others took the huge pages"));
    }
    drop(arena);
    assert_eq!(domain.0.mapped_count(), 0);

    let domain = narrow((3 << 20) - 1);
    let error = Arena::new(domain.clone(), &ArenaOptions::default()).expect_err("none fit");
    assert_eq!(error.kind(), ErrorKind::NoAddresses, "{error}");
    assert_eq!(asked_of(&domain).last(), Some(&base));
}

#[test]
fn addresses_that_are_none_for_the_region_are_refused() {
    /// Says the same address for all, and counts how often it is given back.
    #[derive(Debug)]
    struct Fixed(Iova, AtomicUsize);
    impl Domain for Fixed {
        fn map(&self, _: &Arc<Region>) -> millrace_memory::Result<Iova> {
            Ok(self.0)
        }
        unsafe fn unmap(&self, _: Iova) -> millrace_memory::Result<()> {
            self.1.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
    }
    let two_pages = SizeClass {
        size: 2 * base_page_size(),
        count: 1,
    };
    let last_page = u64::MAX - base_page_size() as u64 + 1;
    for (iova, sound) in [(512, false), (last_page, false), (1 << 32, true)] {
        let domain = Arc::new(Fixed(Iova(iova), AtomicUsize::new(0)));
        let options = ArenaOptions {
            classes: vec![two_pages],
            pages: Pages::Base,
            ..ArenaOptions::default()
        };
        match Arena::new(domain.clone(), &options) {
            Ok(_) => assert!(sound),
            Err(error) => assert!(!sound && error.kind() == ErrorKind::Refused, "{error}"),
        }
        assert_eq!(domain.1.load(Ordering::Relaxed), 1);
    }
}

#[test]
fn classes_that_make_no_sense_are_refused() {
    let options = ArenaOptions {
        classes: vec![],
        ..ArenaOptions::default()
    };
    let error = Arena::new(Recorder::new(), &options).expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

#[test]
fn threads_take_and_drop_blocks() {
    const THREADS: usize = 4;
    const ROUNDS: usize = if cfg!(miri) { 20 } else { 20_000 };
    let domain = Recorder::new();
    let arena = arena_of(&domain, &[(64, 3), (128, 2)]);
    let start = Barrier::new(THREADS);
    thread::scope(|scope| {
        // Buffers go around in a circle, so that each is dropped on another thread than took it.
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..THREADS)
            .map(|_| std::sync::mpsc::channel::<Held>())
            .unzip();
        for (own, receiver) in receivers.into_iter().enumerate() {
            let (arena, start) = (arena.clone(), &start);
            let next = senders[(own + 1) % THREADS].clone();
            scope.spawn(move || {
                start.wait();
                for round in 0..ROUNDS {
                    if let Ok(buffer) = arena.try_buffer(64) {
                        let mark = u8::try_from((round * THREADS + own) % 251).expect("a byte");
                        let held = Held::new(buffer, mark);
                        held.check();
                        // The next thread may be done.
                        drop(next.send(held));
                    }
                    if let Ok(held) = receiver.try_recv() {
                        held.check();
                    }
                }
            });
        }
    });
    let all: Vec<Buffer> = std::iter::from_fn(|| arena.try_buffer(1).ok()).collect();
    assert_eq!(all.len(), 5);
    let mut iovas: Vec<Iova> = all.iter().map(Buffer::iova).collect();
    iovas.sort_unstable();
    iovas.dedup();
    assert_eq!(iovas.len(), 5);
    drop((all, arena));
    assert_eq!(domain.mapped_count(), 0);
}

#[test]
fn the_last_share_unmaps() {
    let domain = Recorder::new();
    let arena = arena_of(&domain, &[(4096, 2)]);
    let clone = arena.clone();
    let buffer = arena.try_buffer(1).expect("free");
    drop(arena);
    let memory = clone.try_buffer(1).expect("free").into_device_memory();
    drop(clone);
    drop(buffer);
    assert_eq!(domain.mapped_count(), 1);
    drop(memory);
    assert_eq!(domain.mapped_count(), 0);
}

#[test]
#[cfg_attr(miri, ignore = "leaks, as it should")]
fn memory_that_cannot_be_unmapped_is_never_freed() {
    let domain = Recorder::new();
    let arena = arena_of(&domain, &[(4096, 1)]);
    let region = Arc::downgrade(arena.region());
    domain.unmap_fails.store(true, Ordering::Relaxed);
    drop(arena);
    assert_eq!(domain.mapped_count(), 1);
    drop(domain);
    assert!(region.upgrade().is_some(), "a device may still write there");
}

#[test]
fn device_memory_is_zeroed_and_little_endian() {
    let domain = Recorder::new();
    let arena = arena_of(&domain, &[(4096, 1)]);
    let mut buffer = arena.try_buffer(4096).expect("free");
    buffer.fill(0xff);
    buffer.set_len(100).expect("shorter");
    let iova = buffer.iova();
    let memory: DeviceMemory = buffer.into_device_memory();
    assert_eq!((memory.len(), memory.iova()), (100, iova));
    assert_eq!(memory.load_u64(0), 0);
    memory.store_u32(4, 0x0102_0304);
    memory.store_u64(8, 0x1112_1314_1516_1718);
    memory.copy_in(16, &[1, u64::MAX]);
    memory.copy_in(96, &[]);
    assert_eq!(memory.load_u32(4), 0x0102_0304);
    assert_eq!(memory.load_u64(0), 0x0102_0304_0000_0000);
    assert_eq!(memory.load_u32(12), 0x1112_1314);
    drop(memory);
    let buffer = arena.try_buffer(4096).expect("free");
    assert_eq!(buffer[..8], [0, 0, 0, 0, 4, 3, 2, 1]);
    assert_eq!(
        buffer[8..16],
        [0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11]
    );
    assert_eq!(buffer[16..24], [1, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(buffer[24..32], [0xff; 8]);
    assert!(
        buffer[32..].iter().all(|byte| *byte == 0),
        "the whole block"
    );
}

#[test]
fn device_memory_begins_at_a_word() {
    let arena = arena_of(&Recorder::new(), &[(4096, 1)]);
    for start in [0, 1, 4, 8, 12, 16, 4095, 4096] {
        let mut buffer = arena.try_buffer(0).expect("each came back");
        buffer.set_range(start..4096).expect("within");
        let iova = buffer.iova();
        let share = std::panic::AssertUnwindSafe(|| buffer.into_device_memory());
        let shared = std::panic::catch_unwind(share);
        assert_eq!(shared.is_ok(), start % DeviceMemory::ALIGN == 0, "{start}");
        let Ok(memory) = shared else { continue };
        assert_eq!((memory.len(), memory.iova()), (4096 - start, iova));
        if !memory.is_empty() {
            memory.store_u64(0, 1);
            memory.copy_in(8 * ((4096 - start) / 8 - 1), &[u64::MAX]);
            memory.store_u32(0, 2);
            assert_eq!(memory.load_u64(0), 2);
        }
    }
}

#[test]
fn device_words_are_shared_by_threads() {
    let arena = arena_of(&Recorder::new(), &[(64, 1)]);
    let memory = arena.try_buffer(16).expect("free").into_device_memory();
    let words = DeviceWords::new(memory);
    thread::scope(|scope| {
        for (word, offset) in (1..).zip((0..words.len()).step_by(4)) {
            let words = &words;
            scope.spawn(move || words.store(offset, word));
        }
    });
    let loaded: Vec<u32> = (0..16).step_by(4).map(|at| words.load(at)).collect();
    assert_eq!(loaded, [1, 2, 3, 4]);
}

#[test]
fn device_memory_is_not_accessed_out_of_bounds() {
    let domain = Recorder::new();
    let arena = arena_of(&domain, &[(128, 2)]);
    let panics = |access: fn(&DeviceMemory)| {
        let memory = arena.try_buffer(100).expect("free").into_device_memory();
        let access = std::panic::AssertUnwindSafe(|| access(&memory));
        std::panic::catch_unwind(access).is_err()
    };
    assert!(!panics(|memory| memory.store_u32(96, 1)));
    assert!(!panics(|memory| memory.store_u64(88, 1)));
    assert!(panics(|memory| memory.store_u64(96, 1)));
    assert!(panics(|memory| memory.store_u32(100, 1)));
    assert!(panics(|memory| memory.store_u32(2, 1)));
    assert!(panics(|memory| memory.store_u64(4, 1)));
    assert!(panics(|memory| _ = memory.load_u32(usize::MAX - 3)));
    assert!(panics(|memory| _ = memory.load_u64(usize::MAX - 7)));
    assert!(panics(|memory| memory.copy_in(88, &[1, 2])));
}

#[test]
fn handles_go_where_they_may() {
    fn send<T: Send>() {}
    fn sync<T: Sync>() {}
    send::<Arena>();
    send::<Buffer>();
    sync::<Buffer>();
    send::<DeviceMemory>();
}
