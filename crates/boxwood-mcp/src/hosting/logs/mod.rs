//! Output of servers and installers: start progress, bounded tails, and redaction of secrets.

pub(crate) mod progress;
pub(crate) mod redact;
mod redact_tools;
pub(crate) mod tail;
