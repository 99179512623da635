//! The conformance suite on native boxes, as whoever runs it: root or an ordinary user.
#![forbid(unsafe_code)]

mod support;

fn main() {
    support::harness::run(boxwood_backend::suite::conformance());
}
