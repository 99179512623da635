//! The escape suite on the engine that the environment chooses: attacks that must not work.
#![forbid(unsafe_code)]

mod support;

fn main() {
    boxwood_suites::run_escape(support::Containers)
}
