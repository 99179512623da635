//! Boxes of two nsjail backends that call the host without a pause: none of it arrives.
#![forbid(unsafe_code)]

mod support;

fn main() {
    boxwood_backend::suite::run_network_stress(support::Nsjail)
}
