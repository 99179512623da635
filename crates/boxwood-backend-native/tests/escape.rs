//! The escape suite on native boxes: attacks that must not work.
#![forbid(unsafe_code)]

mod support;

fn main() {
    support::harness::run(boxwood_backend::suite::escape());
}
