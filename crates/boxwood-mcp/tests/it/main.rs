//! The server without a runtime behind it: what it says of itself, and how it refuses.

mod http;
mod lines;
