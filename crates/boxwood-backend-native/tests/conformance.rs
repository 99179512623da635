//! The conformance suite on native boxes, as whoever runs it: root or an ordinary user.
#![forbid(unsafe_code)]

mod support;

fn main() {
    boxwood_backend::suite::run_conformance(support::Native)
}
