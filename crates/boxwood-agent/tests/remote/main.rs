//! Calls to a runtime in another process that answers, does not answer, closes connections or is not there.

mod calls;
mod fake;
