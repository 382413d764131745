//! The monitor of user-level sockets, and their data plane.
