//! The conformance suite on nsjail boxes.
#![forbid(unsafe_code)]

mod support;

fn main() {
    boxwood_suites::run_conformance(support::Nsjail)
}
