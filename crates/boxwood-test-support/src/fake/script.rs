//! Programs that are threads of the test: they start quickly, and the test decides when they end.
//!
//! `/bin/sh -c "@ WORDS"`, or the program `@` with words as its arguments, is such a program. Its words
//! are commands, one after the other, with `;` between them:
//!
//! - `name NAME`: how [`super::FakeBox::end_program`] finds it
//! - `say TEXT`, `moan TEXT`: prints a line to stdout, or to stderr
//! - `flood N`: N bytes to stdout
//! - `echo`: stdin to stdout, until stdin ends
//! - `stay`: waits until it is ended
//! - `exit CODE`: at once

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};

use boxwood_backend::{ExitStatus, Stdio};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

use super::lock;
use super::program::Ends;

/// The commands, if these arguments are a script.
pub(super) fn text(argv: &[String]) -> Option<String> {
    match argv {
        [shell, flag, text, ..] if shell == "/bin/sh" && flag == "-c" => {
            text.strip_prefix("@ ").map(str::to_owned)
        }
        [program, arguments @ ..] if program == "@" => Some(arguments.join(" ")),
        _ => None,
    }
}

/// The way to end a running script.
pub(super) struct Script {
    name: Option<String>,
    end_signal: Arc<EndSignal>,
}

struct EndSignal {
    status: Mutex<Option<ExitStatus>>,
    wake: OwnedFd,
}

/// A script that is executed by its thread.
pub(super) struct RunningScript {
    text: String,
    stdin: Option<OwnedFd>,
    stdout: OwnedFd,
    stderr: OwnedFd,
    end_signal: Arc<EndSignal>,
}

impl Script {
    pub(super) fn new(text: String, stdio: Stdio) -> io::Result<(Self, Ends, RunningScript)> {
        let pipe = || pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK);
        let end_signal = Arc::new(EndSignal {
            status: Mutex::default(),
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        });
        let (stdin, input) = match stdio {
            Stdio::Pipes => {
                let (reads, writes) = pipe()?;
                (Some(reads), Some(writes))
            }
            Stdio::Output => (None, None),
            Stdio::Terminal(_) => return Err(io::Error::other("a script has no terminal")),
        };
        let (output, stdout) = pipe()?;
        let (errors, stderr) = pipe()?;
        let name = commands(&text).find_map(|command| command.strip_prefix("name "));
        let script = Self {
            name: name.map(str::to_owned),
            end_signal: Arc::clone(&end_signal),
        };
        let ends = Ends {
            stdin: input,
            stdout: Some(output),
            stderr: Some(errors),
        };
        let running = RunningScript {
            text,
            stdin,
            stdout,
            stderr,
            end_signal,
        };
        Ok((script, ends, running))
    }

    pub(super) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The first reason counts.
    pub(super) fn end(&self, status: ExitStatus) {
        lock(&self.end_signal.status).get_or_insert(status);
        // The write fails only if the counter is full; then the descriptor is readable already.
        let _ = rustix::io::write(&self.end_signal.wake, &1_u64.to_ne_bytes());
    }
}

fn commands(text: &str) -> impl Iterator<Item = &str> {
    text.split(';').map(str::trim)
}

/// The script ends with this status.
struct Ended(ExitStatus);

impl RunningScript {
    pub(super) fn run(self) -> ExitStatus {
        for command in commands(&self.text) {
            let (verb, rest) = command.split_once(' ').unwrap_or((command, ""));
            let done = match verb {
                "say" => self.write(&self.stdout, format!("{rest}\n").as_bytes()),
                "moan" => self.write(&self.stderr, format!("{rest}\n").as_bytes()),
                "flood" => self.flood(rest.parse().unwrap_or(0)),
                "echo" => self.echo(),
                "stay" => self.stay(),
                "exit" => Err(Ended(ExitStatus::Code(rest.parse().unwrap_or(2)))),
                "name" | "" => Ok(()),
                _ => Err(Ended(ExitStatus::Code(127))),
            };
            if let Err(Ended(status)) = done {
                return status;
            }
        }
        ExitStatus::Code(0)
    }

    fn flood(&self, mut remaining: usize) -> Result<(), Ended> {
        let chunk = [b'x'; 4096];
        while remaining > 0 {
            let count = remaining.min(chunk.len());
            self.write(&self.stdout, &chunk[..count])?;
            remaining -= count;
        }
        Ok(())
    }

    fn echo(&self) -> Result<(), Ended> {
        let Some(stdin) = &self.stdin else {
            return Ok(());
        };
        let mut buffer = [0; 4096];
        loop {
            match rustix::io::read(stdin, &mut buffer[..]) {
                Ok(0) => return Ok(()),
                Ok(read) => self.write(&self.stdout, &buffer[..read])?,
                Err(Errno::AGAIN) => self.wait(Some((stdin.as_fd(), PollFlags::IN)))?,
                Err(_) => return Err(Ended(ExitStatus::Code(1))),
            }
        }
    }

    fn stay(&self) -> Result<(), Ended> {
        loop {
            self.wait(None)?;
        }
    }

    fn write(&self, to: &OwnedFd, mut bytes: &[u8]) -> Result<(), Ended> {
        while !bytes.is_empty() {
            match rustix::io::write(to, bytes) {
                Ok(written) => bytes = &bytes[written..],
                Err(Errno::AGAIN) => self.wait(Some((to.as_fd(), PollFlags::OUT)))?,
                // No reader: like a program that does not handle SIGPIPE.
                Err(Errno::PIPE) => return Err(Ended(ExitStatus::Signal(13))),
                Err(_) => return Err(Ended(ExitStatus::Code(1))),
            }
        }
        Ok(())
    }

    fn wait(&self, ready: Option<(BorrowedFd<'_>, PollFlags)>) -> Result<(), Ended> {
        let wake = PollFd::new(&self.end_signal.wake, PollFlags::IN);
        let mut waiting = vec![wake];
        if let Some((end, events)) = ready {
            waiting.push(PollFd::from_borrowed_fd(end, events));
        }
        // The result is not needed: the caller repeats its operation.
        let _ = poll(&mut waiting, None);
        match *lock(&self.end_signal.status) {
            Some(status) => Err(Ended(status)),
            None => Ok(()),
        }
    }
}
