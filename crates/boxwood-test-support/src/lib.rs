//! What tests of several crates share.
//!
//! Comes in: nothing of the product's own state. Goes out: a backend without privileges, requests
//! that policy admitted. Never here: anything that ships.
#![forbid(unsafe_code)]

mod asked;
mod fake;
mod small_disk;

pub use asked::{AskedError, admission, admission_for, admission_under};
pub use fake::{FakeBackend, FakeBox, FakeHost, FakeImages, Fault, Point};
pub use small_disk::SmallDisk;

#[cfg(feature = "daemon")]
pub mod daemon;
#[cfg(feature = "daemon")]
pub mod seed_suite;
