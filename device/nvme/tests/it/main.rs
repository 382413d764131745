//! The driver on the controller model: requests, faults, limits, threads, and every mistake that was mended.

mod cache_losses;
mod events;
mod exercise_controller;
mod exercise_parsing;
mod faults;
mod fixture;
mod hostile_controllers;
mod interrupts;
mod limits;
mod parsing;
mod regressions;
mod requests;
mod scene;
mod threads;
