//! BSON values: order, numbers, paths.
