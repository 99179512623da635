//! The conformance suite on the engine that the environment chooses.
#![forbid(unsafe_code)]

mod support;

fn main() {
    boxwood_suites::run_conformance(support::Containers)
}
