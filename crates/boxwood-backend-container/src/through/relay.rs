//! The daemon's end of a box's one connection: turns messages with descriptors into frames and back.
//!
//! Comes in: what a [`boxwood_local::LocalBox`] says to its init. Goes out: what that init answers, with
//! descriptors of this machine in the place of the box's. Never here: what the messages mean.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use boxwood_init::{
    Carried, Channel, ChannelError, Decoder, Facts, Frame, FromInit, Program, StdioPlan, ToInit,
};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::Instant;

use super::streams::Streams;
use crate::cli;

/// Frames on their way to the engine; who has more waits.
const QUEUE: usize = 64;
/// Several in the time that the box takes for silence.
const PING: Duration = Duration::from_secs(10);
/// A connection that says nothing for so long is dead, whatever it looks like.
const SILENCE: Duration = Duration::from_secs(45);

/// A handle of the relay, which works until its connection ends.
pub(crate) struct Relay {
    resized: Notify,
    /// What the engine's program said, once it has ended.
    said: watch::Receiver<Option<String>>,
}

impl Relay {
    /// Relays between the engine's program and `channel`. The facts come when the box has begun.
    pub(super) fn begin(
        mut engine: Child,
        channel: Channel,
    ) -> io::Result<(Arc<Self>, oneshot::Receiver<Facts>)> {
        let missing = || io::Error::other("the engine's program has no streams");
        let input = engine.stdin.take().ok_or_else(missing)?;
        let output = engine.stdout.take().ok_or_else(missing)?;
        let stderr = engine.stderr.take();
        rustix::io::ioctl_fionbio(&channel, true)?;
        let channel = Arc::new(boxwood_local::watch(channel)?);
        let (tell_said, said) = watch::channel(None);
        let relay = Arc::new(Self {
            resized: Notify::new(),
            said,
        });
        let (tell_facts, facts) = oneshot::channel();
        let (frames, leaving) = mpsc::channel(QUEUE);
        let work = Work {
            relay: Arc::clone(&relay),
            streams: Streams::new(frames.clone()),
            frames,
            channel,
        };
        tokio::spawn(async move {
            let said = tokio::spawn(cli::read(stderr));
            work.carry(input, output, leaving, tell_facts).await;
            // Whatever ended it, nothing of the engine's is left running.
            let _ = engine.start_kill();
            let _ = engine.wait().await;
            let said = said.await.ok().and_then(Result::ok);
            tell_said.send_replace(Some(said.unwrap_or_default()));
        });
        Ok((relay, facts))
    }

    /// A terminal has another size.
    pub(crate) fn resized(&self) {
        self.resized.notify_one();
    }

    /// What the engine's program said at its end.
    pub(super) async fn last_words(&self) -> String {
        let mut said = self.said.clone();
        let said = said.wait_for(Option::is_some).await;
        said.ok().and_then(|said| said.clone()).unwrap_or_default()
    }
}

struct Work {
    relay: Arc<Relay>,
    streams: Streams,
    frames: mpsc::Sender<Frame>,
    channel: Arc<AsyncFd<Channel>>,
}

impl Work {
    /// Until any direction ends.
    async fn carry(
        &self,
        input: ChildStdin,
        output: ChildStdout,
        leaving: mpsc::Receiver<Frame>,
        facts: oneshot::Sender<Facts>,
    ) {
        let ended = tokio::select! {
            ended = self.hear_box(output, facts) => ended,
            ended = self.hear_daemon() => ended,
            ended = write(input, leaving) => ended,
            ended = self.tell_sizes() => ended,
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a box's connection ended");
        }
        self.streams.clear();
    }

    async fn hear_box(
        &self,
        mut output: ChildStdout,
        facts: oneshot::Sender<Facts>,
    ) -> io::Result<()> {
        let mut facts = Some(facts);
        let mut decoder = Decoder::default();
        let mut buffer = vec![0_u8; 64 * 1024];
        let mut heard = Instant::now();
        let mut ping = tokio::time::interval(PING);
        loop {
            tokio::select! {
                read = output.read(&mut buffer) => {
                    match read? {
                        0 => return Ok(()),
                        n => decoder.push(&buffer[..n]),
                    }
                    heard = Instant::now();
                    while let Some(frame) = decoder.next_frame().map_err(io::Error::other)? {
                        self.take(frame, &mut facts).await?;
                    }
                }
                _ = ping.tick() => {
                    if heard.elapsed() > SILENCE {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                    // A full queue speaks for itself.
                    let _ = self.frames.try_send(Frame::Ping);
                }
            }
        }
    }

    async fn take(
        &self,
        frame: Frame,
        facts: &mut Option<oneshot::Sender<Facts>>,
    ) -> io::Result<()> {
        match frame {
            Frame::Event { message, terminal } => self.tell(&message, terminal).await,
            Frame::Facts(told) => {
                if let Some(facts) = facts.take() {
                    let _ = facts.send(told);
                }
                Ok(())
            }
            Frame::Data { stream, bytes } => {
                self.streams.data(stream, bytes).map_err(io::Error::other)
            }
            Frame::Credit { stream, bytes } => {
                self.streams.credit(stream, bytes).map_err(io::Error::other)
            }
            Frame::End { stream } | Frame::Gone { stream } => {
                self.streams.remove(stream);
                Ok(())
            }
            Frame::Here => Ok(()),
            Frame::Order { .. } | Frame::Resize { .. } | Frame::Ping => {
                Err(io::Error::other("the box gives orders"))
            }
        }
    }

    /// Passes an event on, with a terminal of ours for one of the box's.
    async fn tell(&self, message: &FromInit, terminal: Option<u32>) -> io::Result<()> {
        let master = match terminal {
            Some(number) => {
                let (master, slave) = plain_terminal()?;
                self.streams.join(number, slave)?;
                Some(master)
            }
            None => None,
        };
        let fds = master.as_ref().map(AsFd::as_fd);
        loop {
            match self.channel.get_ref().send(message, fds.as_slice()) {
                Ok(()) => return Ok(()),
                Err(ChannelError::WouldBlock) => self.channel.writable().await?.clear_ready(),
                Err(error) => return Err(io::Error::other(error)),
            }
        }
    }

    async fn hear_daemon(&self) -> io::Result<()> {
        let mut next: u32 = 0;
        loop {
            let mut ready = self.channel.readable().await?;
            let (message, fds) = match self.channel.get_ref().receive::<ToInit>() {
                Ok(heard) => heard,
                Err(ChannelError::WouldBlock) => {
                    ready.clear_ready();
                    continue;
                }
                Err(ChannelError::Closed) => return Ok(()),
                Err(error) => return Err(io::Error::other(error)),
            };
            let mut open = Vec::new();
            let mut carried = Vec::with_capacity(fds.len());
            for (place, fd) in fds.into_iter().enumerate() {
                carried.push(match kind(&message, place) {
                    Kind::Input => Carried::Input { stream: next },
                    Kind::Output => Carried::Output { stream: next },
                    Kind::File => {
                        let bytes = content(&fd)?;
                        carried.push(Carried::File { bytes });
                        continue;
                    }
                });
                open.push((kind(&message, place), next, fd));
                // Numbers are used again after two thousand million streams.
                next = (next + 1) & (boxwood_init::FIRST_TERMINAL - 1);
            }
            // The output of a program may come as soon as it is ordered, its input only after that.
            let (outputs, inputs): (Vec<_>, Vec<_>) = open
                .into_iter()
                .partition(|(kind, ..)| *kind == Kind::Output);
            for (_, number, fd) in outputs {
                self.streams.write_to(number, fd)?;
            }
            let order = Frame::Order { message, carried };
            self.frames.send(order).await.map_err(io::Error::other)?;
            for (_, number, fd) in inputs {
                self.streams.send_from(number, fd)?;
            }
        }
    }

    async fn tell_sizes(&self) -> io::Result<()> {
        loop {
            self.relay.resized.notified().await;
            for frame in self.streams.resized() {
                self.frames.send(frame).await.map_err(io::Error::other)?;
            }
        }
    }
}

async fn write(mut input: ChildStdin, mut leaving: mpsc::Receiver<Frame>) -> io::Result<()> {
    while let Some(frame) = leaving.recv().await {
        let packet = frame.encode().map_err(io::Error::other)?;
        input.write_all(&packet).await?;
        input.flush().await?;
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Input,
    Output,
    File,
}

/// What the descriptor at `place` is for.
fn kind(message: &ToInit, place: usize) -> Kind {
    let ToInit::Spawn(spawn) = message else {
        return Kind::File;
    };
    match &spawn.program {
        Program::Command {
            stdio: StdioPlan::Streams { stdin, .. },
            ..
        } if *stdin == Some(place) => Kind::Input,
        Program::Command {
            stdio: StdioPlan::Streams { stdout, stderr, .. },
            ..
        } if place == *stdout || place == *stderr => Kind::Output,
        Program::FileTool { answer, .. } if place == *answer => Kind::Output,
        _ => Kind::File,
    }
}

/// All of a file in memory, whatever its position is.
fn content(fd: &OwnedFd) -> io::Result<Vec<u8>> {
    let size = rustix::fs::fstat(fd)?.st_size;
    let mut bytes = vec![0_u8; usize::try_from(size).unwrap_or(0)];
    let mut at = 0;
    while at < bytes.len() {
        match rustix::io::pread(fd, &mut bytes[at..], at as u64)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => at += n,
        }
    }
    Ok(bytes)
}

/// A terminal that changes nothing on the way: the box's own does that.
fn plain_terminal() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = openpt(flags)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let slave = ioctl_tiocgptpeer(&master, flags)?;
    let mut modes = tcgetattr(&slave)?;
    modes.make_raw();
    tcsetattr(&slave, OptionalActions::Now, &modes)?;
    Ok((master, slave))
}
