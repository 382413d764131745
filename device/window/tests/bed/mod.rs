//! Memory of this process as a window.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use millrace_window::{Attributes, Cacheability, Direction, Mapped, WORD, Window};

const fn of(cacheability: Cacheability, coherent: bool) -> Attributes {
    Attributes {
        cacheability,
        coherent,
        direction: Direction::Both,
    }
}

/// All kinds.
pub(crate) const CACHEABILITIES: [Attributes; 4] = [
    Attributes::SHARED_MEMORY,
    of(Cacheability::WriteBack, false),
    of(Cacheability::WriteCombining, true),
    of(Cacheability::Uncached, true),
];

/// Words at a multiple of 128.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Apart([AtomicU64; 16]);

/// Memory on the heap.
#[derive(Debug)]
pub(crate) struct Heap {
    words: Arc<Vec<Apart>>,
    attributes: Attributes,
}

pub(crate) fn heap(size: usize, attributes: Attributes) -> Heap {
    let words = (0..size / size_of::<Apart>()).map(|_| Apart::default());
    Heap {
        words: Arc::new(words.collect()),
        attributes,
    }
}

impl Heap {
    /// A window on all of it.
    pub(crate) fn window(&self) -> Window {
        let size = self.words.len() * size_of::<Apart>();
        let first = NonNull::from(self.words.as_slice()).cast::<u8>();
        // SAFETY: the words live as long as a share of them, of which the window keeps one, and are accessed
        // as atomic words alone, here too.
        let mapped = unsafe { Mapped::new(first, size, self.attributes, self.words.clone()) };
        Window::new(mapped.expect("aligned and not empty"))
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let words = self.words.iter().flat_map(|apart| &apart.0);
        let bytes: Vec<u8> = words
            .flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes())
            .collect();
        assert_eq!(bytes.len() % WORD, 0);
        bytes
    }
}
