//! Arenas, address spaces and regions through their public interface.

mod arena;
mod iova_space;
mod recorder;
mod region;
mod spare_huge_pages;
