//! The wire contract: what callers may rely on is written down here, and a change to it is a diff.

mod answers;
mod coercions;
mod error_codes;
mod payloads;
mod rules;
mod schemas;
