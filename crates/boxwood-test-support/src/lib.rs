//! Support for tests of several crates: a backend without privileges, admitted requests, a daemon harness.
#![forbid(unsafe_code)]

mod admission;
mod fake;
mod small_disk;

pub use admission::{AdmissionError, admission, admission_for, admission_under};
pub use fake::{FakeBackend, FakeBox, FakeHost, FakeImages, Fault, Point};
pub use small_disk::SmallDisk;

#[cfg(feature = "daemon")]
pub mod daemon;
#[cfg(feature = "daemon")]
pub mod langbot_box_suite;
