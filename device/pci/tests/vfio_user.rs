//! Client against server.
