//! Authentication: trust by peer credentials or address, tokens, and browser checks.

mod browser;
mod peer;
mod tokens;

pub(crate) use browser::{BrowserRefusal, check_browser, check_host};
pub(crate) use peer::{Peer, PeerIdentity, Transport, Trust};
pub use tokens::{NewToken, TokenError, Tokens};
