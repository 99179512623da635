//! Who may speak to the daemon.
//!
//! Comes in: a connection's peer and a request's headers. Goes out: yes, or which error. Never here:
//! what the caller may then do; every caller is judged alike by policy.

mod browser;
mod peer;
mod tokens;

pub(crate) use browser::{FromElsewhere, check_browser, check_host};
pub(crate) use peer::{Peer, Transport, Trust, Who};
pub use tokens::{NewToken, TokenError, TokenInfo, Tokens};
