//! The states of one side of a connection.
//!
//! ```text
//!        +------------------------- Open -----------------------------+
//!        | reset                      | RESET received |              | CLOSE sent,
//!        v                            v                |              v both have finished
//!    Resetting <------ reset ----- PeerReset           |           Closing ------- reset -----+
//!      |   |                          |                |              |                       |
//!      |   | RESET sent, the          | CLOSE sent     | CLOSE sent,  | CLOSE or RESET        |
//!      |   | peer's last frame        |                | the peer has | received              |
//!      |   | came before              v                v closed       v                       v
//!      |   +------------------------> Over <-----------+--------------+                  Discarding
//!      |                               ^                                                   |    ^
//!      |                               +------------- CLOSE or RESET received -------------+    |
//!      +---------------------------------- RESET sent ------------------------------------------+
//!
//!    Open, sending half      Idle <--> Ready --> Draining --> Finishing --> Finished
//!                              |                                  ^
//!                              +--------------- finish -----------+
//!    Open, receiving half    Open --> Finished --> Closed
//! ```
//!
//! # Transitions
//! An event without a row changes nothing; a received frame that the receiving half does not allow is a violation. The
//! violation is a `reset` by this side, with `EPROTO`.
//!
//! | half      | from       | event           | to         | condition                                  |
//! |-----------|------------|-----------------|------------|--------------------------------------------|
//! | sending   | Idle       | ready           | Ready      |                                            |
//! | sending   | Idle       | finish          | Finishing  |                                            |
//! | sending   | Ready      | drained         | Idle       |                                            |
//! | sending   | Ready      | finish          | Draining   |                                            |
//! | sending   | Draining   | drained         | Finishing  |                                            |
//! | sending   | Finishing  | FINISH sent     | Finished   |                                            |
//! | receiving | Open       | FINISH received | Finished   |                                            |
//! | receiving | Finished   | CLOSE received  | Closed     |                                            |
//! | both      | Open       | CLOSE sent      | Closing    | both halves are Finished                   |
//! | both      | Open       | CLOSE sent      | Over       | the receiving half is Closed               |
//! | both      | Open       | RESET received  | PeerReset  |                                            |
//! | both      | Open       | reset           | Resetting  |                                            |
//! | both      | Closing    | CLOSE received  | Over       |                                            |
//! | both      | Closing    | RESET received  | Over       |                                            |
//! | both      | Closing    | reset           | Discarding |                                            |
//! | both      | PeerReset  | FINISH sent     | PeerReset  | the sending half was Finishing             |
//! | both      | PeerReset  | CLOSE sent      | Over       |                                            |
//! | both      | PeerReset  | reset           | Resetting  |                                            |
//! | both      | Resetting  | CLOSE received  | Resetting  |                                            |
//! | both      | Resetting  | RESET received  | Resetting  |                                            |
//! | both      | Resetting  | reset           | Resetting  | with the new errno                         |
//! | both      | Resetting  | RESET sent      | Discarding | the peer's last frame has not arrived      |
//! | both      | Resetting  | RESET sent      | Over       | the peer's last frame has arrived          |
//! | both      | Discarding | CLOSE received  | Over       |                                            |
//! | both      | Discarding | RESET received  | Over       |                                            |

use super::endpoints::ProtocolViolation;
use super::frame::Kind;

/// The state of one side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ConnectionState {
    /// The endpoint uses the connection. Each half has its own state.
    Open {
        sending: SendingHalf,
        receiving: ReceivingHalf,
    },
    /// Both sides have finished and this side's CLOSE was sent. The peer's last frame is awaited.
    Closing,
    /// The endpoint is finished with the connection, and a RESET is due. Received frames are discarded.
    Resetting {
        errno: u16,
        /// Whether the peer's last frame has arrived.
        has_peer_closed: bool,
    },
    /// The peer has reset the connection, and a CLOSE is due. Received frames are discarded.
    PeerReset {
        /// Whether a FINISH is due before the CLOSE.
        is_finishing: bool,
    },
    /// The endpoint is finished with the connection and this side's last frame was sent. Received frames are discarded
    /// up to the peer's last one.
    Discarding,
    /// Both last frames have passed: no frame names the connection. Its entry is kept while it is in a queue.
    Over,
}

/// The sending half of an open connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum SendingHalf {
    /// The endpoint has no bytes now.
    Idle,
    /// The endpoint has bytes.
    Ready,
    /// The endpoint has its last bytes.
    Draining,
    /// All bytes were sent, and a FINISH is due.
    Finishing,
    /// FINISH was sent.
    Finished,
}

/// The receiving half of an open connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ReceivingHalf {
    /// Bytes may arrive.
    Open,
    /// FINISH has arrived.
    Finished,
    /// CLOSE has arrived.
    Closed,
}

/// A frame that ends a direction or the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndFrame {
    Finish,
    Close,
    /// A RESET with this errno.
    Reset(u16),
}

impl ConnectionState {
    /// The state of a new connection.
    pub(super) const NEW: Self = Self::Open {
        sending: SendingHalf::Idle,
        receiving: ReceivingHalf::Open,
    };

    /// The state after the endpoint got bytes to send.
    pub(super) const fn ready(self) -> Self {
        match self {
            Self::Open {
                sending: SendingHalf::Idle,
                receiving,
            } => Self::Open {
                sending: SendingHalf::Ready,
                receiving,
            },
            other => other,
        }
    }

    /// The state after the endpoint's last available bytes were taken.
    pub(super) const fn drained(self) -> Self {
        let Self::Open { sending, receiving } = self else {
            return self;
        };
        let sending = match sending {
            SendingHalf::Ready => SendingHalf::Idle,
            SendingHalf::Draining => SendingHalf::Finishing,
            other => other,
        };
        Self::Open { sending, receiving }
    }

    /// The state after the endpoint has announced that no further bytes follow.
    pub(super) const fn finish(self) -> Self {
        let Self::Open { sending, receiving } = self else {
            return self;
        };
        let sending = match sending {
            SendingHalf::Idle => SendingHalf::Finishing,
            SendingHalf::Ready => SendingHalf::Draining,
            other => other,
        };
        Self::Open { sending, receiving }
    }

    /// The state after a reset by this side: by the endpoint, or because of a violation.
    pub(super) const fn reset(self, errno: u16) -> Self {
        match self {
            Self::Open { receiving, .. } => Self::Resetting {
                errno,
                has_peer_closed: matches!(receiving, ReceivingHalf::Closed),
            },
            Self::PeerReset { .. } => Self::Resetting {
                errno,
                has_peer_closed: true,
            },
            Self::Resetting {
                has_peer_closed, ..
            } => Self::Resetting {
                errno,
                has_peer_closed,
            },
            Self::Closing => Self::Discarding,
            Self::Discarding | Self::Over => self,
        }
    }

    /// The frame that is due, and the state after it was sent.
    pub(super) const fn due(self) -> Option<(EndFrame, Self)> {
        match self {
            Self::Open { sending, receiving } => match (sending, receiving) {
                (SendingHalf::Finishing, _) => {
                    let sending = SendingHalf::Finished;
                    Some((EndFrame::Finish, Self::Open { sending, receiving }))
                }
                (_, ReceivingHalf::Closed) => Some((EndFrame::Close, Self::Over)),
                (SendingHalf::Finished, ReceivingHalf::Finished) => {
                    Some((EndFrame::Close, Self::Closing))
                }
                _ => None,
            },
            Self::Resetting {
                errno,
                has_peer_closed,
            } => {
                let after = if has_peer_closed {
                    Self::Over
                } else {
                    Self::Discarding
                };
                Some((EndFrame::Reset(errno), after))
            }
            Self::PeerReset { is_finishing: true } => {
                let is_finishing = false;
                Some((EndFrame::Finish, Self::PeerReset { is_finishing }))
            }
            Self::PeerReset {
                is_finishing: false,
            } => Some((EndFrame::Close, Self::Over)),
            Self::Closing | Self::Discarding | Self::Over => None,
        }
    }

    /// The state after a received frame.
    ///
    /// # Errors
    /// [`ProtocolViolation::Order`] if the receiving half does not allow the frame.
    pub(super) const fn receive(self, kind: Kind) -> Result<Self, ProtocolViolation> {
        let is_last = matches!(kind, Kind::Close | Kind::Reset);
        match self {
            Self::Open { sending, receiving } => Self::receive_open(sending, receiving, kind),
            Self::Closing if matches!(kind, Kind::Data | Kind::Urgent | Kind::Finish) => {
                Err(ProtocolViolation::Order)
            }
            Self::Closing | Self::Discarding if is_last => Ok(Self::Over),
            Self::Resetting { errno, .. } if is_last => Ok(Self::Resetting {
                errno,
                has_peer_closed: true,
            }),
            Self::Closing
            | Self::Resetting { .. }
            | Self::PeerReset { .. }
            | Self::Discarding
            | Self::Over => Ok(self),
        }
    }

    const fn receive_open(
        sending: SendingHalf,
        receiving: ReceivingHalf,
        kind: Kind,
    ) -> Result<Self, ProtocolViolation> {
        let receiving = match (receiving, kind) {
            (ReceivingHalf::Closed, _)
            | (ReceivingHalf::Finished, Kind::Data | Kind::Urgent | Kind::Finish)
            | (ReceivingHalf::Open, Kind::Close) => return Err(ProtocolViolation::Order),
            (ReceivingHalf::Open, Kind::Finish) => ReceivingHalf::Finished,
            (ReceivingHalf::Finished, Kind::Close) => ReceivingHalf::Closed,
            (_, Kind::Reset) => {
                return Ok(Self::PeerReset {
                    is_finishing: matches!(sending, SendingHalf::Finishing),
                });
            }
            (same, Kind::Data | Kind::Urgent | Kind::Credit | Kind::Pad) => same,
        };
        Ok(Self::Open { sending, receiving })
    }

    /// Whether the endpoint has bytes that may still be sent.
    pub(super) const fn has_data(self) -> bool {
        matches!(
            self,
            Self::Open {
                sending: SendingHalf::Ready | SendingHalf::Draining,
                ..
            }
        )
    }

    /// Whether bytes may arrive and reach the endpoint.
    pub(super) const fn receives_bytes(self) -> bool {
        matches!(
            self,
            Self::Open {
                receiving: ReceivingHalf::Open,
                ..
            }
        )
    }

    /// Whether this side's last frame was sent.
    pub(super) const fn has_closed(self) -> bool {
        matches!(self, Self::Closing | Self::Discarding | Self::Over)
    }

    /// Whether the peer's CLOSE has arrived: each further frame is a violation.
    pub(super) const fn has_peer_closed(self) -> bool {
        matches!(
            self,
            Self::Open {
                receiving: ReceivingHalf::Closed,
                ..
            }
        )
    }

    /// Whether the endpoint is finished with the connection: received frames are discarded, and the only call that
    /// follows is [`Endpoints::closed`](super::Endpoints::closed).
    pub(super) const fn is_discarding(self) -> bool {
        matches!(
            self,
            Self::Resetting { .. } | Self::PeerReset { .. } | Self::Discarding
        )
    }

    /// Whether no further frame names the connection.
    pub(super) const fn is_over(self) -> bool {
        matches!(self, Self::Over)
    }
}

#[cfg(test)]
mod tests;
