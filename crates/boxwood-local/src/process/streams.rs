//! Creates the pipes and terminals of a program.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::fchown;
use std::sync::{Arc, Mutex};

use boxwood_backend::{Copied, Input, Keep, Output, SpawnError, SpawnRequest, Stdio};
use boxwood_init::{Program, StdioPlan};
use boxwood_sys::memory::sealed_file;
use rustix::fs::MemfdFlags;
use rustix::pipe::{PipeFlags, pipe_with};

use crate::adopt::kept_program::{KeepGuard, StreamGuard, StreamIndexes};
use crate::cgroup::ExecGroup;
use crate::lock;
use crate::process::pipe::{PipeReader, PipeWriter};
use crate::sandbox::link::{SharedGroup, release_group};
use crate::sandbox::resources::BoxResources;

/// The kernel limits one argument to 128 KiB; longer scripts are passed in a memfd.
const MAX_INLINE_SCRIPT_BYTES: usize = 96 * 1024;
/// The kernel's limit for one argument, without the terminating NUL.
const MAX_ARGUMENT_BYTES: usize = 128 * 1024 - 1;

pub(crate) struct Prepared {
    pub(crate) program: Program,
    pub(crate) child_fds: Vec<OwnedFd>,
    /// `None` for a terminal.
    pub(crate) pipes: Option<Pipes>,
    pub(crate) keep: Option<Keep>,
}

/// Our ends. A stream is `None` if an earlier daemon has closed it.
pub(crate) struct Pipes {
    pub(crate) stdin: Option<OwnedFd>,
    pub(crate) stdout: Option<OwnedFd>,
    pub(crate) stderr: Option<OwnedFd>,
}

pub(crate) fn step(source: impl Into<io::Error>) -> SpawnError {
    SpawnError::Step {
        step: "open the streams of the program".to_owned(),
        source: source.into(),
    }
}

/// `owner` is the host uid and gid of the command. It owns the pipes, so that the command may open
/// `/dev/stdout`.
pub(crate) fn prepare(
    request: SpawnRequest,
    owner: Option<(u32, u32)>,
) -> Result<Prepared, SpawnError> {
    let SpawnRequest {
        mut argv,
        env,
        cwd,
        stdio,
        keep,
    } = request;
    let mut child_fds = Vec::with_capacity(4);
    let mut add = |fd| {
        child_fds.push(fd);
        child_fds.len() - 1
    };
    let (stdio, pipes) = match stdio {
        Stdio::Terminal(size) => (
            StdioPlan::Terminal {
                rows: size.rows,
                cols: size.cols,
            },
            None,
        ),
        Stdio::Output | Stdio::Pipes => {
            let pipe = || {
                let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).map_err(step)?;
                if let Some((uid, gid)) = owner {
                    // Both ends have the same inode.
                    fchown(&writer, Some(uid), Some(gid)).map_err(step)?;
                }
                Ok::<_, SpawnError>((reader, writer))
            };
            let (stdin, our_stdin) = match stdio {
                Stdio::Pipes => {
                    let (read_end, write_end) = pipe()?;
                    (Some(add(read_end)), Some(write_end))
                }
                _ => (None, None),
            };
            let ((our_stdout, stdout), (our_stderr, stderr)) = (pipe()?, pipe()?);
            let plan = StdioPlan::Streams {
                stdin,
                stdout: add(stdout),
                stderr: add(stderr),
            };
            (
                plan,
                Some(Pipes {
                    stdin: our_stdin,
                    stdout: Some(our_stdout),
                    stderr: Some(our_stderr),
                }),
            )
        }
    };
    let script = match long_script(&argv) {
        Some(script) => {
            let script = script.as_bytes();
            let memfd = sealed_file("script", MemfdFlags::empty(), script).map_err(step)?;
            argv = vec![argv[0].clone(), "/dev/fd/3".to_owned()];
            Some(add(memfd))
        }
        None => None,
    };
    if argv
        .iter()
        .any(|argument| argument.len() > MAX_ARGUMENT_BYTES)
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
        child_fds,
        pipes,
        keep,
    })
}

/// The script of `sh -c` if it is too long for an argument.
fn long_script(argv: &[String]) -> Option<&str> {
    match argv {
        [shell, flag, script] if shell == "/bin/sh" && flag == "-c" => {
            (script.len() > MAX_INLINE_SCRIPT_BYTES).then_some(script)
        }
        _ => None,
    }
}

/// The descriptors that init keeps of the program, and their indexes.
pub(crate) fn kept_fds<'a>(
    pipes: Option<&'a Pipes>,
    keep: &'a Keep,
) -> (StreamIndexes, Vec<BorrowedFd<'a>>) {
    let mut fds = Vec::new();
    let mut add = |fd: &'a Option<OwnedFd>| {
        fds.push(fd.as_ref()?.as_fd());
        Some(fds.len() - 1)
    };
    let mut indexes = pipes.map_or_else(StreamIndexes::default, |pipes| StreamIndexes {
        stdin: add(&pipes.stdin),
        stdout: add(&pipes.stdout),
        stderr: add(&pipes.stderr),
        ..StreamIndexes::default()
    });
    indexes.first_file = fds.len();
    indexes.files = keep.files.len();
    fds.extend(keep.files.iter().map(|file| file.as_fd()));
    indexes.terminal = pipes.is_none().then_some(fds.len());
    (indexes, fds)
}

impl Pipes {
    /// Registers the pipes with the runtime. `kept_streams` is set if init keeps the program.
    pub(crate) fn register(
        self,
        kept_streams: Option<&(StreamIndexes, Arc<KeepGuard>)>,
    ) -> io::Result<Streams> {
        let indexes = kept_streams
            .map(|(indexes, _)| *indexes)
            .unwrap_or_default();
        let guard = |index| kept_streams.map(|(_, keep_guard)| StreamGuard::new(keep_guard, index));
        let stdin = match self.stdin {
            Some(fd) => Some(Box::new(PipeWriter::new(fd, guard(indexes.stdin))?) as _),
            None => None,
        };
        let output = |pipe: Option<OwnedFd>, index| -> io::Result<Box<dyn Output>> {
            Ok(match pipe {
                Some(pipe) => Box::new(PipeReader::new(pipe, guard(index))?),
                // Closed by an earlier daemon.
                None => Box::new(Copied(tokio::io::empty())),
            })
        };
        Ok(Streams {
            stdin,
            stdout: Some(output(self.stdout, indexes.stdout)?),
            stderr: Some(output(self.stderr, indexes.stderr)?),
        })
    }
}

/// Our ends of a program's streams, registered with the runtime.
#[derive(Default)]
pub(crate) struct Streams {
    pub(crate) stdin: Option<Box<dyn Input>>,
    pub(crate) stdout: Option<Box<dyn Output>>,
    pub(crate) stderr: Option<Box<dyn Output>>,
}

impl Streams {
    /// Both directions of a terminal. Init closes its copy when the last of its streams is dropped.
    pub(crate) fn of_terminal(
        master: &OwnedFd,
        keep_guard: Option<&Arc<KeepGuard>>,
    ) -> io::Result<Self> {
        let guard = || keep_guard.map(|keep_guard| StreamGuard::new(keep_guard, None));
        let stdin = PipeWriter::new(master.try_clone()?, guard())?;
        let stdout = PipeReader::new(master.try_clone()?, guard())?;
        Ok(Self {
            stdin: Some(Box::new(Copied(stdin))),
            stdout: Some(Box::new(Copied(stdout))),
            stderr: None,
        })
    }
}

/// A program's cgroup, released when the last handle of the program is dropped.
pub(crate) struct GroupGuard {
    group: SharedGroup,
    resources: Arc<BoxResources>,
}

impl GroupGuard {
    pub(crate) fn new(group: Option<ExecGroup>, resources: Arc<BoxResources>) -> Self {
        let group = Arc::new(Mutex::new(group));
        Self { group, resources }
    }

    /// A reference for the box, which holds it while the program runs.
    pub(crate) fn share(&self) -> SharedGroup {
        Arc::clone(&self.group)
    }

    pub(crate) fn resources(&self) -> &BoxResources {
        &self.resources
    }

    pub(crate) fn with<T>(&self, work: impl FnOnce(&ExecGroup) -> T) -> Option<T> {
        lock(&self.group).as_ref().map(work)
    }
}

impl Drop for GroupGuard {
    fn drop(&mut self) {
        // While the program runs, the link holds the group too and releases it on exit.
        if Arc::strong_count(&self.group) > 1 {
            return;
        }
        release_group(&self.group, &self.resources);
    }
}
