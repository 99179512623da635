//! Authentication: trust by peer credentials or address, tokens, and browser checks.

mod browser;
mod peer;
mod tokens;

pub(crate) use browser::{FromElsewhere, check_browser, check_host};
pub(crate) use peer::{Peer, Transport, Trust, Who};
pub use tokens::{NewToken, TokenError, Tokens};
