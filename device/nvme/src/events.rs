//! Asynchronous events of a controller (Base 5.2).

/// What an asynchronous event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// An error that is not one command's.
    Error,
    /// Health: media, temperature, spare blocks.
    Health,
    /// Notice: a change of namespaces or firmware.
    Notice,
    /// Of the I/O command set.
    CommandSet,
    /// An event type that the vendor defines.
    Vendor,
    /// A type that the specification does not name.
    Unknown(u8),
}

/// An asynchronous event of a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncEvent {
    /// Type of the event (bits 2:0 of dword 0).
    pub kind: EventKind,
    /// Which of its kind (Base figures 146 to 150).
    pub information: u8,
    /// The log page that has more.
    pub log_page: u8,
}

impl AsyncEvent {
    /// Reads dword 0 of the completion.
    pub(crate) fn parse(result: u32) -> Self {
        let [kind, information, log_page, _] = result.to_le_bytes();
        let kind = match kind & 7 {
            0 => EventKind::Error,
            1 => EventKind::Health,
            2 => EventKind::Notice,
            6 => EventKind::CommandSet,
            7 => EventKind::Vendor,
            other => EventKind::Unknown(other),
        };
        Self {
            kind,
            information,
            log_page,
        }
    }

    /// Whether the attributes of namespaces changed: they must be identified anew.
    #[must_use]
    pub fn is_namespace_change(&self) -> bool {
        self.kind == EventKind::Notice && self.information == 0
    }
}
