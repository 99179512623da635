//! A process in a box.

use std::collections::BTreeMap;
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
    Pipes,
    /// A pseudo-terminal. Output of both streams arrives on stdout; stderr is `None`.
    Terminal(TerminalSize),
}

/// Not `Debug`: values of the environment may be secrets.
#[derive(Clone)]
pub struct SpawnRequest {
    /// Program and arguments. A program without a slash is looked up in the box's `PATH`. An argument over
    /// the kernel's limit fails, except for the script of `/bin/sh -c`, which local backends pass in a
    /// memfd.
    pub argv: Vec<String>,
    /// Added to the basic environment of the box, with precedence.
    pub env: BTreeMap<String, String>,
    /// Absolute; created if missing.
    pub cwd: String,
    pub stdio: Stdio,
    /// `None` if the program does not have to survive a restart of the daemon; the restart then kills it.
    pub keep: Option<Keep>,
}

/// State of a program that init keeps besides its pipes and exit status, and returns to the daemon that
/// adopts the box. Released when all parts of the [`Process`] are dropped.
#[derive(Clone)]
pub struct Keep {
    /// Opaque data of the caller about the program.
    pub note: Vec<u8>,
    /// Files that have to survive, such as buffered output or pending input.
    pub files: Vec<Arc<OwnedFd>>,
}

/// A running program. Dropping it closes its streams; the program keeps running until it exits, is killed, or
/// its box ends.
pub struct Process {
    /// Dropping it (after flushing) signals end of file to the program, except on a terminal.
    pub stdin: Option<Box<dyn Input>>,
    pub stdout: Box<dyn Output>,
    pub stderr: Option<Box<dyn Output>>,
    pub control: Arc<dyn ProcessControl>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The program itself; on a terminal its foreground process group.
    Process,
    /// The program and all its descendants. Only SIGKILL is guaranteed to reach all of them.
    Tree,
}

pub trait ProcessControl: Send + Sync {
    /// Resolves when the program itself has exited. Can be called any number of times.
    fn wait(&self) -> BoxFuture<'_, Exit>;
    fn signal(&self, signal: i32, scope: Scope) -> BoxFuture<'_, Result<(), ControlError>>;
    fn resize(&self, size: TerminalSize) -> Result<(), ControlError>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitStatus {
    Code(i32),
    Signal(i32),
    /// The box died before the exit status was reported.
    BoxGone,
}

/// The exit status of a program, and events counted by the box's cgroup while it ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    pub status: ExitStatus,
    /// The box's out-of-memory counter rose while the program ran.
    pub oom: bool,
    /// A fork was refused by the process limit while the program ran.
    pub pids_limit: bool,
    /// A tmpfs of the box was full when the program failed.
    pub disk_full: bool,
    /// The last system call of the program or its descendants that seccomp refused.
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
