//! The description of a program that init keeps for the next daemon.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use boxwood_api::{MAX_SHOWN_COMMAND_BYTES, ProcessSpec};
use boxwood_backend::{Keep, Stdio};
use jiff::Timestamp;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// Daemons of other versions read it too: new fields need a default, and fields keep their meaning.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Note {
    Managed {
        spec: ProcessSpec,
        started_at: Timestamp,
    },
    Exec(ExecNote),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ExecNote {
    pub(crate) exec_id: u64,
    /// For display, shortened.
    pub(crate) command: String,
    pub(crate) started_at: Timestamp,
    pub(crate) began: BootTime,
    pub(crate) deadline: BootTime,
    pub(crate) kind: KindNote,
    #[serde(default)]
    pub(crate) notices: Vec<String>,
    /// Capture limit of a captured exec, independent of the next daemon's settings.
    #[serde(default)]
    pub(crate) capture_bytes: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum KindNote {
    /// The output is read at the end; the complete input is in a journal.
    Captured,
    /// A streamed exec.
    Live(Streaming),
}

/// How an exec is streamed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Streaming {
    pub(crate) stdio: StdioNote,
    pub(crate) resumable: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StdioNote {
    Output,
    Pipes,
    Terminal,
}

impl From<Stdio> for StdioNote {
    fn from(stdio: Stdio) -> Self {
        match stdio {
            Stdio::Output => Self::Output,
            Stdio::Pipes => Self::Pipes,
            Stdio::Terminal(_) => Self::Terminal,
        }
    }
}

impl Note {
    /// What init keeps of the program.
    pub(crate) fn keep(&self, files: Vec<Arc<OwnedFd>>) -> io::Result<Keep> {
        let note = serde_json::to_vec(self)?;
        Ok(Keep { note, files })
    }
}

/// Nanoseconds of `CLOCK_BOOTTIME`, which is the same for all daemons until a reboot and cannot be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct BootTime(u64);

impl BootTime {
    pub(crate) fn now() -> Self {
        let now = clock_gettime(ClockId::Boottime);
        let now = Duration::try_from(now).unwrap_or_default();
        Self(nanos(now))
    }

    pub(crate) fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(nanos(duration)))
    }

    /// Zero if `earlier` is in the future.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Shortens a command for display.
pub(crate) fn shown(command: &str) -> String {
    let end = command.floor_char_boundary(MAX_SHOWN_COMMAND_BYTES);
    command[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_round_trip() {
        let exec = Note::Exec(ExecNote {
            exec_id: 7,
            command: "make".to_owned(),
            started_at: Timestamp::now(),
            began: BootTime::now(),
            deadline: BootTime::now().after(Duration::from_secs(9)),
            kind: KindNote::Live(Streaming {
                stdio: StdioNote::Terminal,
                resumable: true,
            }),
            notices: vec!["cut".to_owned()],
            capture_bytes: Some(7),
        });
        let managed = Note::Managed {
            spec: ProcessSpec {
                process_id: boxwood_api::ProcessId::default(),
                command: "server".to_owned(),
                args: vec!["--port".to_owned()],
                env: [("KEY".to_owned(), "value".to_owned())].into(),
                cwd: "/workspace".to_owned(),
            },
            started_at: Timestamp::now(),
        };
        for note in [exec, managed] {
            let bytes = note.keep(Vec::new()).expect("JSON").note;
            let read: Note = serde_json::from_slice(&bytes).expect("the same");
            assert_eq!(read, note);
        }
        assert!(serde_json::from_slice::<Note>(b"{\"other\":1}").is_err());
    }

    #[test]
    fn deadlines_are_relative_to_the_boot() {
        let now = BootTime::now();
        let deadline = now.after(Duration::from_secs(5));
        assert_eq!(deadline.since(now), Duration::from_secs(5));
        assert_eq!(now.since(deadline), Duration::ZERO);
    }

    #[test]
    fn a_long_command_is_cut_between_characters() {
        let long = "\u{20ac}".repeat(1000);
        let cut = shown(&long);
        assert!(cut.len() <= MAX_SHOWN_COMMAND_BYTES && long.starts_with(&cut));
    }
}
