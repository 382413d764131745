//! User-level sockets under the C library's names.
