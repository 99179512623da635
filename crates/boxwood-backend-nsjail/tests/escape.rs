//! The escape suite on nsjail boxes: attacks that must not work.
#![forbid(unsafe_code)]

mod support;

fn main() {
    boxwood_suites::run_escape(support::Nsjail)
}
