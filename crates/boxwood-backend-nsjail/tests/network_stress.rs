//! Boxes of two nsjail backends send packets to the host continuously; none may arrive.
#![forbid(unsafe_code)]

mod support;

fn main() {
    boxwood_suites::run_network_stress(support::Nsjail)
}
