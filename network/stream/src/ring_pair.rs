//! One side of a connection.

use millrace_window::{Mapped, Medium, Window};

use crate::layout::{Geometry, RING, Side, WAITS_FOR_ROOM};
use crate::ring::Ring;
use crate::slot::SALT;
use crate::{PeerState, Receiver, Result, Sender};

/// One side of a connection: a sender, a receiver, and the peer's state.
#[derive(Debug)]
pub struct RingPair<M: Medium = Mapped> {
    /// The state in the peer's area.
    pub peer_state: PeerState<M>,
    /// The sending half of this side.
    pub sender: Sender<M>,
    /// The receiving half of this side.
    pub receiver: Receiver<M>,
}

impl<M: Medium> RingPair<M> {
    /// This side of the connection whose memory is at the start of the window.
    ///
    /// # Errors
    /// [`ErrorKind::Geometry`](crate::ErrorKind::Geometry) if the geometry is invalid; [`ErrorKind::Window`](crate::ErrorKind::Window) if the window is too small, for one
    /// direction alone, or in use by another ring pair.
    pub fn new(window: &Window<M>, geometry: Geometry, side: Side) -> Result<Self> {
        geometry.check()?;
        let (own, peer) = (side.area(geometry), side.peer().area(geometry));
        let receiver = window.outgoing(own.start..own.start + WAITS_FOR_ROOM)?;
        let sender = window.outgoing(own.start + WAITS_FOR_ROOM..own.end)?;
        let ring = |skipped| Ring::new(RING - skipped, geometry.ring_lines, SALT);
        Ok(Self {
            peer_state: PeerState::new(window.incoming(peer)?, ring(0)),
            sender: Sender::new(sender, ring(WAITS_FOR_ROOM)),
            receiver: Receiver::new(receiver, ring(0)),
        })
    }
}
