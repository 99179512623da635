//! The pipes and terminals between a program and whoever runs it.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::fchown;
use std::sync::{Arc, Mutex, PoisonError};

use boxwood_backend::{Copied, Process, SpawnError, SpawnRequest, Stdio};
use boxwood_init::{Program, StdioPlan};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::net::unix::pipe::{Receiver, Sender};

use crate::cgroup::ExecGroup;
use crate::process::Control;
use crate::remains::Remains;
use crate::terminal::Terminal;

/// One argument cannot exceed 128 KiB; scripts from here on travel in a file in memory.
const LONGEST_INLINE_SCRIPT: usize = 96 * 1024;
/// The kernel's own bound for one string, less its end.
const LONGEST_ARGUMENT: usize = 128 * 1024 - 1;

pub(crate) struct Prepared {
    pub(crate) program: Program,
    pub(crate) theirs: Vec<OwnedFd>,
    pub(crate) ours: Ours,
}

pub(crate) enum Ours {
    Pipes {
        stdin: Option<OwnedFd>,
        stdout: OwnedFd,
        stderr: OwnedFd,
    },
    Terminal,
}

fn step(source: impl Into<io::Error>) -> SpawnError {
    SpawnError::Step {
        step: "open its streams".to_owned(),
        source: source.into(),
    }
}

/// `owner` is the host uid and gid of the command: what opens `/dev/stdout` must be allowed to.
pub(crate) fn prepare(
    request: SpawnRequest,
    owner: Option<(u32, u32)>,
) -> Result<Prepared, SpawnError> {
    let SpawnRequest {
        mut argv,
        env,
        cwd,
        stdio,
        keep: _,
    } = request;
    let mut theirs = Vec::with_capacity(4);
    let mut place = |fd| {
        theirs.push(fd);
        theirs.len() - 1
    };
    let (stdio, ours) = match stdio {
        Stdio::Terminal(size) => (
            StdioPlan::Terminal {
                rows: size.rows,
                cols: size.cols,
            },
            Ours::Terminal,
        ),
        Stdio::Output | Stdio::Pipes => {
            let pipe = || {
                let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).map_err(step)?;
                if let Some((uid, gid)) = owner {
                    // Both ends are one inode.
                    fchown(&writer, Some(uid), Some(gid)).map_err(step)?;
                }
                Ok::<_, SpawnError>((reader, writer))
            };
            let (stdin, our_stdin) = match stdio {
                Stdio::Pipes => {
                    let (theirs, ours) = pipe()?;
                    (Some(place(theirs)), Some(ours))
                }
                _ => (None, None),
            };
            let ((our_stdout, stdout), (our_stderr, stderr)) = (pipe()?, pipe()?);
            let plan = StdioPlan::Streams {
                stdin,
                stdout: place(stdout),
                stderr: place(stderr),
            };
            (
                plan,
                Ours::Pipes {
                    stdin: our_stdin,
                    stdout: our_stdout,
                    stderr: our_stderr,
                },
            )
        }
    };
    let script = match long_script(&argv) {
        Some(script) => {
            let memfd = sealed(script)?;
            argv = vec![argv[0].clone(), "/dev/fd/3".to_owned()];
            Some(place(memfd))
        }
        None => None,
    };
    if argv
        .iter()
        .any(|argument| argument.len() > LONGEST_ARGUMENT)
    {
        return Err(SpawnError::TooLong);
    }
    let env = env.into_iter().collect();
    Ok(Prepared {
        program: Program::Command {
            argv,
            env,
            cwd,
            stdio,
            script,
        },
        theirs,
        ours,
    })
}

/// The script of a `sh -c`, when it is too long to be an argument.
fn long_script(argv: &[String]) -> Option<&str> {
    match argv {
        [shell, flag, script] if shell == "/bin/sh" && flag == "-c" => {
            (script.len() > LONGEST_INLINE_SCRIPT).then_some(script)
        }
        _ => None,
    }
}

/// A file in memory that nobody can change any more.
fn sealed(text: &str) -> Result<OwnedFd, SpawnError> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memfd = memfd_create("script", flags).map_err(step)?;
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        let n = rustix::io::write(&memfd, rest).map_err(step)?;
        rest = &rest[n..];
    }
    let seals = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
    fcntl_add_seals(&memfd, seals).map_err(step)?;
    Ok(memfd)
}

impl Ours {
    pub(crate) fn into_process(
        self,
        terminal: Option<OwnedFd>,
        control: impl FnOnce(Option<Terminal>) -> Control,
    ) -> Result<Process, SpawnError> {
        match (self, terminal) {
            (
                Self::Pipes {
                    stdin,
                    stdout,
                    stderr,
                },
                _,
            ) => Ok(Process {
                stdin: match stdin {
                    Some(fd) => Some(Box::new(Copied(Sender::from_owned_fd(fd).map_err(step)?))),
                    None => None,
                },
                stdout: Box::new(Copied(Receiver::from_owned_fd(stdout).map_err(step)?)),
                stderr: Some(Box::new(Copied(
                    Receiver::from_owned_fd(stderr).map_err(step)?,
                ))),
                control: Arc::new(control(None)),
            }),
            (Self::Terminal, Some(master)) => {
                let terminal = Terminal::new(master).map_err(step)?;
                Ok(Process {
                    stdin: Some(Box::new(Copied(terminal.clone()))),
                    stdout: Box::new(Copied(terminal.clone())),
                    stderr: None,
                    control: Arc::new(control(Some(terminal))),
                })
            }
            (Self::Terminal, None) => Err(step(io::Error::other("no terminal came back"))),
        }
    }
}

/// A program's cgroup, given back to its box when the last handle of the program goes.
pub(crate) struct Held {
    group: Arc<Mutex<Option<ExecGroup>>>,
    remains: Arc<Remains>,
}

impl Held {
    pub(crate) fn new(group: Arc<Mutex<Option<ExecGroup>>>, remains: Arc<Remains>) -> Self {
        Self { group, remains }
    }

    pub(crate) fn with<T>(&self, work: impl FnOnce(&ExecGroup) -> T) -> Option<T> {
        self.group
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .as_ref()
            .map(work)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // While the program runs the box holds the group too, and takes it back at its end.
        if Arc::strong_count(&self.group) > 1 {
            return;
        }
        let group = self
            .group
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let (Some(group), Some(of)) = (group, &self.remains.group) {
            of.release(group);
        }
    }
}
