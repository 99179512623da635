//! What happened to a program, recorded for the next daemon.
//!
//! An incomplete record is ignored.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use boxwood_api::{ExecExit, ExecStatus, Reason};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::journal::{Journal, invalid_data};
use crate::session::activity::lock;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Fact {
    /// A caller asked for the end or sent a signal.
    #[serde(rename = "asked")]
    StopRequested,
    /// It is killed because of its timeout.
    TimedOut,
    /// It is killed because it has no client.
    Abandoned,
    Ended(EndFact),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct EndFact {
    pub(crate) at: Timestamp,
    #[serde(flatten)]
    pub(crate) exit: ExecExit,
}

impl Fact {
    pub(crate) fn end(facts: &[Self]) -> Option<&EndFact> {
        facts.iter().find_map(|fact| match fact {
            Self::Ended(end) => Some(end),
            Self::StopRequested | Self::TimedOut | Self::Abandoned => None,
        })
    }
}

/// How a program ended. The duration is set later.
pub(crate) fn exec_exit(exit_code: Option<i32>, reason: Option<Reason>) -> ExecExit {
    let status = match reason {
        Some(Reason::Timeout) => ExecStatus::TimedOut,
        _ => ExecStatus::Completed,
    };
    ExecExit {
        exit_code,
        status,
        reason,
        duration_ms: 0,
        notices: Vec::new(),
    }
}

/// Maximum size. Far more than the facts of one program.
const MAX_BYTES: u64 = 64 * 1024;

/// Lines in a memory file. Locked while one is appended: a stop request and the end may come at the same time.
pub(crate) struct Facts(Mutex<Journal>);

impl Facts {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(Mutex::new(Journal::once("facts")?)))
    }

    pub(crate) fn from_file(file: OwnedFd) -> io::Result<(Self, Vec<Fact>)> {
        let journal = Journal::from_file(file)?;
        if journal.end() > MAX_BYTES {
            return Err(invalid_data("the facts of a program are too long"));
        }
        let facts: Result<Vec<Fact>, _> = journal
            .read(0, usize::MAX)?
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(serde_json::from_slice)
            .collect();
        Ok((Self(Mutex::new(journal)), facts?))
    }

    pub(crate) fn file(&self) -> Arc<OwnedFd> {
        lock(&self.0).file()
    }

    pub(crate) fn add(&self, fact: &Fact) {
        let line = serde_json::to_vec(fact).map(|line| [line, vec![b'\n']].concat());
        let added = line
            .map_err(io::Error::from)
            .and_then(|line| lock(&self.0).append(&line));
        if let Err(error) = added {
            tracing::warn!(%error, ?fact, "failed to record an event of a program; it is lost if the daemon restarts");
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{SeekFrom, seek, tell};
    use rustix::io::pwrite;

    use super::*;

    fn reread(facts: &Facts) -> io::Result<Vec<Fact>> {
        Facts::from_file(facts.file().try_clone().expect("a duplicate")).map(|(_, facts)| facts)
    }

    #[test]
    fn facts_are_read_in_order() {
        let facts = Facts::new().expect("a file");
        assert_eq!(reread(&facts).expect("none"), []);
        let ended = Fact::Ended(EndFact {
            at: Timestamp::now(),
            exit: exec_exit(Some(143), Some(Reason::Cancelled)),
        });
        facts.add(&Fact::StopRequested);
        facts.add(&ended);
        assert_eq!(reread(&facts).expect("both"), [Fact::StopRequested, ended]);
    }

    #[test]
    fn facts_that_are_added_at_the_same_time_are_all_kept() {
        let facts = Facts::new().expect("a file");
        std::thread::scope(|threads| {
            for fact in [Fact::StopRequested, Fact::TimedOut] {
                let facts = &facts;
                threads.spawn(move || (0..1000).for_each(|_| facts.add(&fact)));
            }
        });
        assert_eq!(reread(&facts).expect("all of them").len(), 2000);
    }

    #[test]
    fn an_incomplete_fact_is_ignored() {
        let facts = Facts::new().expect("a file");
        facts.add(&Fact::TimedOut);
        let at = tell(&*facts.file()).expect("a position");
        pwrite(&*facts.file(), b"\"aband", at).expect("written");
        assert_eq!(reread(&facts).expect("one"), [Fact::TimedOut]);
    }

    #[test]
    fn an_invalid_fact_is_an_error() {
        let facts = Facts::new().expect("a file");
        pwrite(&*facts.file(), b"nonsense\n", 0).expect("written");
        seek(&*facts.file(), SeekFrom::Start(9)).expect("moved");
        assert!(reread(&facts).is_err());
    }
}
