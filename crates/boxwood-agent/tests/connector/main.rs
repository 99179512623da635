//! A connection that is kept, against a runtime that answers, stands still, refuses and comes back.

mod calls;
mod fake;
mod heartbeat;
mod reconnect;
