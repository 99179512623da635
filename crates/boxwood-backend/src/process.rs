//! A process in a box, as the layers above hold it.

use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::{BoxFuture, ControlError, Input, Output};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalSize {
    pub rows: u16,
    pub cols: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stdio {
    /// stdin is `/dev/null`; stdout and stderr are pipes.
    Output,
    /// Three pipes.
    Pipes,
    /// A terminal of the box's own; stdout carries everything, stderr is `None`.
    Terminal(TerminalSize),
}

#[derive(Clone)]
pub struct SpawnRequest {
    /// Program and arguments. Looked up in the box's `PATH` when it has no slash. Arguments over
    /// the kernel's limit for one string are the caller's problem, except for the script of
    /// `/bin/sh -c`, which local backends pass in a memfd when it is long.
    pub argv: Vec<String>,
    /// Added to (and winning over) the box's own basic environment.
    pub env: BTreeMap<String, String>,
    /// Absolute; created when missing.
    pub cwd: String,
    pub stdio: Stdio,
    /// `None`: nobody looks for it after a restart of the daemon, which kills it.
    pub keep: Option<Keep>,
}

/// What outlives the daemon with a program, beside its own pipes: handed to whichever daemon adopts
/// the box, together with how the program ended. Let go of when every part of its [`Process`] has
/// been dropped.
#[derive(Clone)]
pub struct Keep {
    /// What the program is to whoever started it.
    pub note: Vec<u8>,
    /// Files that have to survive: what was read of its output, what is to become its input.
    pub files: Vec<Arc<OwnedFd>>,
}

/// Environment values may be secrets, so only their names are shown.
impl fmt::Debug for SpawnRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpawnRequest")
            .field("argv", &self.argv)
            .field("env_keys", &self.env.keys().collect::<Vec<_>>())
            .field("cwd", &self.cwd)
            .field("stdio", &self.stdio)
            .field("kept", &self.keep.is_some())
            .finish()
    }
}

/// A running program. Dropping it lets go of its streams; the program lives on until it is killed,
/// exits, or its box goes.
pub struct Process {
    /// Dropping it (after flushing) is end of file for the program, except on a terminal.
    pub stdin: Option<Box<dyn Input>>,
    pub stdout: Box<dyn Output>,
    pub stderr: Option<Box<dyn Output>>,
    pub control: Arc<dyn ProcessControl>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The program itself (on a terminal: its foreground group).
    Process,
    /// The program and every descendant, whatever they did to hide. Only for SIGKILL is this
    /// promised to reach all of them.
    Tree,
}

pub trait ProcessControl: Send + Sync {
    /// Resolves when the program itself has ended. Any number of callers, any time.
    fn wait(&self) -> BoxFuture<'_, Exit>;
    fn signal(&self, signal: i32, scope: Scope) -> BoxFuture<'_, Result<(), ControlError>>;
    fn resize(&self, size: TerminalSize) -> Result<(), ControlError>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitStatus {
    Code(i32),
    Signal(i32),
    /// The box died and took the status with it.
    BoxGone,
}

/// How a program ended, with what the box's counters said meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    pub status: ExitStatus,
    /// The box's out-of-memory counter rose while the program ran.
    pub oom: bool,
    /// A fork was refused by the process limit while the program ran.
    pub pids_limit: bool,
    /// A private area of the box was full when the program failed.
    pub disk_full: bool,
    /// The last system call of the program's tree that the filter refused.
    pub denied_syscall: Option<String>,
}

impl Exit {
    /// The shell's convention: 128+n for death by signal n.
    pub fn code(&self) -> Option<i32> {
        match self.status {
            ExitStatus::Code(code) => Some(code),
            ExitStatus::Signal(signal) => Some(128 + signal),
            ExitStatus::BoxGone => None,
        }
    }
}
