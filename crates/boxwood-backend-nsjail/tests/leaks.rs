//! What is on the host before the backend starts and after it has shut down: the same.
#![forbid(unsafe_code)]

mod support;

fn main() {}
