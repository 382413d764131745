//! The program's room for events.

use libc::epoll_event;

/// The array that the program gave to `epoll_wait`: written from the front, never read before.
#[derive(Debug)]
pub(crate) struct Events {
    first: *mut epoll_event,
    room: usize,
    count: usize,
}

impl Events {
    /// # Safety
    /// `first` is room for `room` events as long as this lives.
    pub(crate) unsafe fn new(first: *mut epoll_event, room: usize) -> Self {
        Self {
            first,
            room,
            count: 0,
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    pub(crate) fn room(&self) -> usize {
        self.room - self.count
    }

    /// Address of the slot for the next event.
    pub(crate) fn next(&self) -> *mut epoll_event {
        // Not beyond the end of the array, as the count is at most the room.
        self.first.wrapping_add(self.count)
    }

    pub(crate) fn push(&mut self, events: u32, data: u64) {
        assert!(
            self.count < self.room,
            "event array is full: the caller checks `room()` first"
        );
        let event = epoll_event { events, u64: data };
        // SAFETY: below the room which `new` was promised; the program need not have aligned it.
        unsafe { self.next().write_unaligned(event) };
        self.count += 1;
    }

    /// The event at this place, which need not be counted yet.
    ///
    /// # Safety
    /// The slot was written: by `push`, or by the kernel behind the count.
    pub(crate) unsafe fn at(&self, place: usize) -> (u32, u64) {
        assert!(place < self.room, "event index lies beyond the array");
        // SAFETY: the place lies within the room, and was written, as this function asks for.
        let event = unsafe { self.first.wrapping_add(place).read_unaligned() };
        (event.events, event.u64)
    }
}
