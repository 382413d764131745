//! Byte streams over a window: lanes between two processes, and what processes and their monitor say to each other.
