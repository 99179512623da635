//! Which boxes there are, written down where a killed daemon leaves it.
//!
//! Comes in: boxes that are about to start, that are ready, that have ended. Goes out: what an earlier
//! daemon wrote, and how sessions came to their ends. Never here: whether a box really lives. The ledger
//! is the index; what runs is the truth, and wins wherever the two differ.
#![forbid(unsafe_code)]

mod book;
mod error;
mod lease;
mod ledger;
mod schema;
mod store;
mod thread;

use std::path::PathBuf;

use boxwood_api::SessionId;
use jiff::Timestamp;

pub use error::{LedgerError, OpenError};
pub use lease::Lease;
pub use ledger::Ledger;

/// One box.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub incarnation: u64,
    pub session: SessionId,
    pub backend: String,
    pub name: String,
    /// Empty where the box ends with its daemon.
    pub socket: PathBuf,
    /// What the box was made from, in the session layer's own words.
    pub spec: String,
    pub lease: Lease,
    pub state: State,
    pub created_at: Timestamp,
}

/// How far a box had come when it was last written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nobody was told of it.
    Starting,
    Ready,
}

/// How a session came to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    pub session: SessionId,
    pub incarnation: u64,
    pub why: String,
    pub at: Timestamp,
}

/// What was there when the ledger was opened.
#[derive(Clone, Debug)]
pub enum Opened {
    /// Nothing: a first start, or somebody removed it.
    Fresh,
    Known,
    /// Something that is no ledger, or not one that this version can read. It was moved out of the
    /// way, and never deleted.
    Damaged {
        moved_to: PathBuf,
        why: String,
    },
    /// Nothing that can be read, and no room to write. Everything is kept in memory until there is
    /// room again; until then no new box can be written down.
    InMemory {
        why: LedgerError,
    },
}
