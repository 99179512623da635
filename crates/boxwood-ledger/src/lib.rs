//! `SQLite` database of boxes and ended sessions. It survives the daemon.
//!
//! Whether a box is alive is not decided here: running boxes are authoritative where they differ from the ledger.
#![forbid(unsafe_code)]

mod boot;
mod error;
mod ledger;
mod schema;
mod store;
mod thread;

use std::path::PathBuf;

use boxwood_api::SessionId;
use jiff::Timestamp;

pub use boot::current_boot;
pub use error::{LedgerError, OpenError};
pub use ledger::Ledger;

/// One box.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub incarnation: u64,
    pub session: SessionId,
    pub backend: String,
    pub name: String,
    /// Empty if the box ends with its daemon.
    pub socket: PathBuf,
    /// The boot of the machine in which a daemon last had the box, as in [`current_boot`].
    pub boot: String,
    pub state: State,
    pub created_at: Timestamp,
}

/// The last recorded state of a box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Not yet reported to a client.
    Starting,
    Ready,
}

/// The end of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    pub session: SessionId,
    pub incarnation: u64,
    pub why: String,
    pub at: Timestamp,
}

/// The state of the ledger when it was opened.
#[derive(Clone, Debug)]
pub enum Opened {
    /// There was none: the first start, or it was removed.
    Fresh,
    /// It was there and is readable.
    Known,
    /// Not a ledger, or not readable by this version. It was renamed, not deleted.
    Damaged { moved_to: PathBuf, why: String },
    /// The disk is full. The ledger is in memory until there is space; until then no box can be added.
    InMemory { why: LedgerError },
}
