//! One program of a fake box, and what is kept of it for the next daemon.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, Weak};

use boxwood_backend::{Exit, ExitStatus, Keep};
use rustix::process::Pid;
use tokio::sync::watch;

use super::boxes::FakeBox;
use super::script::Script;
use super::terminal::Terminal;
use super::{lock, tree};

pub(super) fn box_mark(id: &str) -> String {
    format!("BOXWOOD_FAKE_BOX={id}")
}

/// The daemon's ends of a program's streams.
#[derive(Default)]
pub(super) struct Ends {
    pub(super) stdin: Option<OwnedFd>,
    pub(super) stdout: Option<OwnedFd>,
    pub(super) stderr: Option<OwnedFd>,
}

/// How the program runs.
pub(super) enum ProgramKind {
    /// A child of the test.
    Child { pid: Option<Pid>, mark: String },
    /// A thread of the test.
    Script(Script),
}

struct Kept {
    keep: Keep,
    ends: Ends,
}

/// Copies of what is kept, for a daemon that takes the box over.
pub(super) struct Copies {
    pub(super) note: Vec<u8>,
    pub(super) files: Vec<OwnedFd>,
    pub(super) ends: Ends,
}

pub(super) struct Program {
    number: u64,
    pub(super) kind: ProgramKind,
    pub(super) terminal: Option<Arc<Terminal>>,
    kept: Mutex<Option<Kept>>,
    exit: watch::Sender<Option<Exit>>,
}

impl Program {
    pub(super) fn new(number: u64, kind: ProgramKind, terminal: Option<Arc<Terminal>>) -> Self {
        Self {
            number,
            kind,
            terminal,
            kept: Mutex::default(),
            exit: watch::Sender::new(None),
        }
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn is_called(&self, name: &str) -> bool {
        match &self.kind {
            ProgramKind::Script(script) => script.name() == Some(name),
            ProgramKind::Child { .. } => false,
        }
    }

    pub(super) fn is_running(&self) -> bool {
        self.exit.borrow().is_none()
    }

    pub(super) fn exit(&self) -> watch::Receiver<Option<Exit>> {
        self.exit.subscribe()
    }

    /// Returns false for a child process and for a program that has ended.
    pub(super) fn end_script(&self, status: ExitStatus) -> bool {
        match &self.kind {
            ProgramKind::Script(script) if self.is_running() => {
                script.end(status);
                true
            }
            ProgramKind::Script(_) | ProgramKind::Child { .. } => false,
        }
    }

    /// For a program without a handle.
    pub(super) fn kill(&self) {
        match &self.kind {
            ProgramKind::Script(script) => script.end(ExitStatus::Signal(9)),
            ProgramKind::Child { mark, .. } => tree::kill_marked(mark),
        }
    }

    pub(super) fn keep(&self, keep: Keep, ends: Ends) {
        *lock(&self.kept) = Some(Kept { keep, ends });
    }

    pub(super) fn is_kept(&self) -> bool {
        lock(&self.kept).is_some()
    }

    /// Drops the kept end of stdin. The program reads end of file when the daemon has closed its own end too.
    pub(super) fn release_stdin(&self) {
        if let Some(kept) = &mut *lock(&self.kept) {
            kept.ends.stdin = None;
        }
    }

    pub(super) fn release_kept(&self) {
        let kept = lock(&self.kept).take();
        drop(kept);
    }

    /// `None` if it is not kept.
    pub(super) fn copies(&self) -> io::Result<Option<Copies>> {
        let kept = lock(&self.kept);
        let Some(Kept { keep, ends }) = &*kept else {
            return Ok(None);
        };
        let files: io::Result<Vec<_>> = keep.files.iter().map(|file| file.try_clone()).collect();
        Ok(Some(Copies {
            note: keep.note.clone(),
            files: files?,
            ends: ends.copies()?,
        }))
    }

    /// Notifies all waiting callers.
    pub(super) fn ended(&self, status: ExitStatus, fake_box: &Weak<FakeBox>) {
        let fake_box = fake_box.upgrade();
        let status = match &fake_box {
            Some(fake_box) if fake_box.is_alive() => status,
            Some(_) | None => ExitStatus::BoxGone,
        };
        self.exit.send_replace(Some(exit(status)));
        if let Some(fake_box) = fake_box {
            fake_box.drop_if_ended(self);
        }
    }
}

impl Ends {
    pub(super) fn copies(&self) -> io::Result<Self> {
        let copy = |end: &Option<OwnedFd>| end.as_ref().map(OwnedFd::try_clone).transpose();
        Ok(Self {
            stdin: copy(&self.stdin)?,
            stdout: copy(&self.stdout)?,
            stderr: copy(&self.stderr)?,
        })
    }
}

pub(super) fn exit(status: ExitStatus) -> Exit {
    Exit {
        status,
        oom: false,
        pids_limit: false,
        disk_full: false,
        denied_syscall: None,
    }
}
