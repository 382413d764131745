//! The progress of a sender and of a receiver: plain words that the caller stores.

/// The progress of a sender. The default is the start of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendCursor {
    /// Ring position, in 64-byte lines since the start.
    pub position: u64,
    /// Lines that the peer has returned, as known.
    pub returned: u64,
    /// The count of bytes sent since the start.
    pub total: u64,
    /// The count of this side's sleeps for room.
    pub armed: u64,
    /// The peer's last sleep for data for which it was notified.
    pub notified: u64,
    /// The position of the last rewind check, in sixteenths of the ring.
    pub stride: u64,
    /// 1 when the end was sent.
    pub ended: u64,
    /// The position of the last pad; 0 is none.
    pub pad: u64,
}

/// The progress of a receiver. The default is the start of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiveCursor {
    /// Ring position, in 64-byte lines since the start.
    pub position: u64,
    /// Bytes already received of the slot at `position`.
    pub taken: u64,
    /// Lines whose credit was returned to the sender.
    pub credited: u64,
    /// 1 if the peer may sleep for lines returned since the last [`Receiver::wake`](crate::Receiver::wake).
    pub wake_pending: u64,
    /// The count of bytes received since the start.
    pub total: u64,
    /// The count of this side's sleeps for data.
    pub armed: u64,
    /// The peer's last sleep for room for which it was notified.
    pub notified: u64,
    /// Twice the place of the urgent byte that was taken out of band, plus 1 if urgent bytes stay inline.
    pub urgent: u64,
}

impl ReceiveCursor {
    /// Whether urgent bytes stay inline (`SO_OOBINLINE`).
    #[must_use]
    pub const fn is_urgent_inline(&self) -> bool {
        self.urgent & 1 == 1
    }

    /// Sets whether urgent bytes stay inline; the default is out of band.
    pub const fn set_urgent_inline(&mut self, is_inline: bool) {
        self.urgent = self.urgent >> 1 << 1 | is_inline as u64;
    }

    pub(crate) const fn urgent_taken(&self) -> u64 {
        self.urgent >> 1
    }
}
