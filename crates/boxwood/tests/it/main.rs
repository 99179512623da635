//! The `boxwood` command end to end: what it prints, its exit codes, and the daemon behind it.
//!
//! A new test goes into the folder of its topic; helpers that several topics share go into `support/`.

mod agent;
mod boxes;
mod help;
mod langbot;
mod lifecycle;
mod mcp;
mod support;
