//! What happened to a program, recorded for the next daemon.
//!
//! An incomplete record is ignored.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use boxwood_api::{ExecStatus, Reason};
use jiff::Timestamp;
use rustix::fs::{MemfdFlags, SeekFrom, memfd_create, seek, tell};
use rustix::io::{pread, pwrite};
use serde::{Deserialize, Serialize};

use super::journal::wrong;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Fact {
    /// A caller asked for the end or sent a signal.
    Asked,
    /// It is killed because of its timeout.
    TimedOut,
    /// It is killed because it has no client.
    Abandoned,
    Ended(EndFact),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct EndFact {
    pub(crate) at: Timestamp,
    pub(crate) status: ExecStatus,
    pub(crate) exit_code: Option<i32>,
    pub(crate) reason: Option<Reason>,
    pub(crate) duration_ms: u64,
}

/// Far more than the facts of one program.
const MOST_BYTES: usize = 64 * 1024;

/// Lines in a memory file. The shared file position is the end of the last complete one.
pub(crate) struct Facts(Arc<OwnedFd>);

impl Facts {
    pub(crate) fn new() -> io::Result<Self> {
        let file = memfd_create("facts", MemfdFlags::CLOEXEC)?;
        Ok(Self(Arc::new(file)))
    }

    pub(crate) fn from_file(file: OwnedFd) -> io::Result<(Self, Vec<Fact>)> {
        let length = usize::try_from(tell(&file)?).unwrap_or(usize::MAX);
        if length > MOST_BYTES {
            return Err(wrong("the facts of a program are too long"));
        }
        let mut bytes = vec![0; length];
        let mut filled = 0;
        while filled < length {
            match pread(&file, &mut bytes[filled..], filled as u64)? {
                0 => return Err(wrong("the facts of a program are incomplete")),
                read => filled += read,
            }
        }
        let facts: Result<Vec<Fact>, _> = bytes
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(serde_json::from_slice)
            .collect();
        Ok((Self(Arc::new(file)), facts?))
    }

    pub(crate) fn file(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.0)
    }

    pub(crate) fn add(&self, fact: &Fact) {
        if let Err(error) = self.write(fact) {
            tracing::warn!(%error, ?fact, "failed to record what happened to a program; the next daemon will not know");
        }
    }

    fn write(&self, fact: &Fact) -> io::Result<()> {
        let mut line = serde_json::to_vec(fact)?;
        line.push(b'\n');
        let at = tell(&*self.0)?;
        if pwrite(&*self.0, &line, at)? != line.len() {
            return Err(io::ErrorKind::WriteZero.into());
        }
        seek(&*self.0, SeekFrom::Start(at + line.len() as u64))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn again(facts: &Facts) -> io::Result<Vec<Fact>> {
        Facts::from_file(facts.file().try_clone().expect("a duplicate")).map(|(_, facts)| facts)
    }

    #[test]
    fn facts_are_read_in_order() {
        let facts = Facts::new().expect("a file");
        assert_eq!(again(&facts).expect("none"), []);
        let ended = Fact::Ended(EndFact {
            at: Timestamp::now(),
            status: ExecStatus::Completed,
            exit_code: Some(143),
            reason: Some(Reason::Cancelled),
            duration_ms: 12,
        });
        facts.add(&Fact::Asked);
        facts.add(&ended);
        assert_eq!(again(&facts).expect("both"), [Fact::Asked, ended]);
    }

    #[test]
    fn an_incomplete_fact_is_ignored() {
        let facts = Facts::new().expect("a file");
        facts.add(&Fact::TimedOut);
        let at = tell(&*facts.0).expect("a position");
        pwrite(&*facts.0, b"\"aband", at).expect("written");
        assert_eq!(again(&facts).expect("one"), [Fact::TimedOut]);
    }

    #[test]
    fn an_invalid_fact_is_an_error() {
        let facts = Facts::new().expect("a file");
        pwrite(&*facts.0, b"nonsense\n", 0).expect("written");
        seek(&*facts.0, SeekFrom::Start(9)).expect("moved");
        assert!(again(&facts).is_err());
    }
}
