//! The conformance suite on native boxes, as root or as an ordinary user.
#![forbid(unsafe_code)]

mod support;

fn main() {
    boxwood_suites::run_conformance(support::Native)
}
