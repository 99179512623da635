//! The pipes and terminals between a program and whoever runs it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::fchown;
use std::sync::{Arc, Mutex, PoisonError};

use boxwood_backend::{Copied, Input, Keep, Output, Process, SpawnError, SpawnRequest, Stdio};
use boxwood_init::{Program, StdioPlan};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::cgroup::ExecGroup;
use crate::keeping::{Part, Places, Token};
use crate::link::SharedGroup;
use crate::pipe::{PipeReader, PipeWriter};
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
    pub(crate) keep: Option<Keep>,
}

pub(crate) enum Ours {
    /// Those that an earlier daemon has closed already are `None`.
    Pipes {
        stdin: Option<OwnedFd>,
        stdout: Option<OwnedFd>,
        stderr: Option<OwnedFd>,
    },
    Terminal,
}

pub(crate) fn step(source: impl Into<io::Error>) -> SpawnError {
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
        keep,
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
                    stdout: Some(our_stdout),
                    stderr: Some(our_stderr),
                },
            )
        }
    };
    let script = match long_script(&argv) {
        Some(script) => {
            let memfd = sealed(script.as_bytes()).map_err(step)?;
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
        keep,
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
pub(crate) fn sealed(bytes: &[u8]) -> rustix::io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memfd = memfd_create("script", flags)?;
    let mut rest = bytes;
    while !rest.is_empty() {
        let n = rustix::io::write(&memfd, rest)?;
        rest = &rest[n..];
    }
    let seals = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
    fcntl_add_seals(&memfd, seals)?;
    Ok(memfd)
}

impl Ours {
    /// What init is to keep of the program, and where in its list each of it is.
    pub(crate) fn kept<'a>(&'a self, keep: &'a Keep) -> (Places, Vec<BorrowedFd<'a>>) {
        let mut fds = Vec::new();
        let mut place = |fd: &'a Option<OwnedFd>| {
            let fd = fd.as_ref()?;
            fds.push(fd.as_fd());
            Some(fds.len() - 1)
        };
        let mut places = match self {
            Self::Terminal => Places::default(),
            Self::Pipes {
                stdin,
                stdout,
                stderr,
            } => Places {
                stdin: place(stdin),
                stdout: place(stdout),
                stderr: place(stderr),
                ..Places::default()
            },
        };
        places.first_file = fds.len();
        places.files = keep.files.len();
        fds.extend(keep.files.iter().map(|file| file.as_fd()));
        if matches!(self, Self::Terminal) {
            places.terminal = Some(fds.len());
        }
        (places, fds)
    }

    /// Registers the pipes with the runtime. `kept` is set if init keeps the program.
    pub(crate) fn watch(self, kept: Option<&(Places, Arc<Token>)>) -> io::Result<Watched> {
        let places = kept.map(|(places, _)| *places).unwrap_or_default();
        let part = |place| kept.map(|(_, token)| Part::new(token, place));
        let Self::Pipes {
            stdin,
            stdout,
            stderr,
        } = self
        else {
            return Ok(Watched::Terminal);
        };
        let stdin = match stdin {
            Some(fd) => Some(PipeWriter::new(fd, part(places.stdin))?),
            None => None,
        };
        Ok(Watched::Pipes {
            stdin: stdin.map(|stdin| Box::new(stdin) as _),
            stdout: output(stdout, || part(places.stdout))?,
            stderr: output(stderr, || part(places.stderr))?,
        })
    }
}

/// Our ends of a program's streams.
pub(crate) enum Watched {
    Pipes {
        stdin: Option<Box<dyn Input>>,
        stdout: Box<dyn Output>,
        stderr: Box<dyn Output>,
    },
    /// Init sends it.
    Terminal,
}

impl Watched {
    pub(crate) fn into_process(
        self,
        terminal: Option<OwnedFd>,
        token: Option<Arc<Token>>,
        control: impl FnOnce(Option<Terminal>, Option<Arc<Token>>) -> Control,
    ) -> io::Result<Process> {
        match (self, terminal) {
            (
                Self::Pipes {
                    stdin,
                    stdout,
                    stderr,
                },
                _,
            ) => Ok(Process {
                stdin,
                stdout,
                stderr: Some(stderr),
                control: Arc::new(control(None, token)),
            }),
            (Self::Terminal, Some(master)) => {
                let terminal = Terminal::new(master)?;
                let part = || token.as_ref().map(|token| Part::new(token, None));
                let with = |part| Copied(terminal.clone().of(part));
                Ok(Process {
                    stdin: Some(Box::new(with(part()))),
                    stdout: Box::new(with(part())),
                    stderr: None,
                    control: Arc::new(control(Some(terminal), token)),
                })
            }
            // Its box went before it had one.
            (Self::Terminal, None) => Ok(Process {
                stdin: None,
                stdout: Box::new(Copied(tokio::io::empty())),
                stderr: None,
                control: Arc::new(control(None, token)),
            }),
        }
    }
}

fn output(
    pipe: Option<OwnedFd>,
    part: impl FnOnce() -> Option<Part>,
) -> io::Result<Box<dyn Output>> {
    Ok(match pipe {
        Some(pipe) => Box::new(PipeReader::new(pipe, part())?),
        // An earlier daemon was done with it.
        None => Box::new(Copied(tokio::io::empty())),
    })
}

/// A program's cgroup, given back to its box when the last handle of the program goes.
pub(crate) struct Held {
    group: SharedGroup,
    remains: Arc<Remains>,
}

impl Held {
    pub(crate) fn new(group: Option<ExecGroup>, remains: Arc<Remains>) -> Self {
        let group = Arc::new(Mutex::new(group));
        Self { group, remains }
    }

    /// For the box, which holds it while the program runs.
    pub(crate) fn share(&self) -> SharedGroup {
        Arc::clone(&self.group)
    }

    pub(crate) fn remains(&self) -> &Remains {
        &self.remains
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
