//! The escape suite on native boxes: attacks that must not work.
#![forbid(unsafe_code)]

mod support;

fn main() {
    boxwood_suites::run_escape(support::Native)
}
