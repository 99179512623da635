//! The daemon's end of the connection to a relayed box.
//!
//! Translates messages with descriptors of a [`boxwood_local::LocalBox`] into frames, and back.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use boxwood_init::{
    Attachment, Channel, Decoder, Facts, Frame, FromInit, Program, StdioPlan, ToInit,
};
use boxwood_local::AsyncChannel;
use boxwood_sys::memory::read_whole;
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::Instant;

use super::streams::{Direction, Streams};
use crate::cli;

/// Larger files do not fit into a frame.
const MAX_FILE_BYTES: u64 = 64 * 1024 * 1024;

/// Frames that wait for the engine; further senders wait.
const QUEUE: usize = 64;
/// Several pings fit into the time after which the box considers the connection dead.
const PING_INTERVAL: Duration = Duration::from_secs(10);
/// A connection without any data for this long is dead.
const RECEIVE_TIMEOUT: Duration = Duration::from_secs(45);

/// A handle to the relay, which runs until its connection ends.
pub(super) struct Relay {
    /// To be notified after a terminal was resized.
    pub(super) resized: Arc<Notify>,
    /// Receives stderr of the engine's client, once it has exited.
    message: oneshot::Receiver<String>,
}

impl Relay {
    /// Relays between the engine's client and `channel`. The facts arrive when the box has started.
    pub(super) fn begin(
        mut engine: Child,
        channel: Channel,
    ) -> io::Result<(Self, oneshot::Receiver<Facts>)> {
        let missing = || io::Error::other("the engine's client has no streams");
        let input = engine.stdin.take().ok_or_else(missing)?;
        let output = engine.stdout.take().ok_or_else(missing)?;
        let stderr = engine.stderr.take();
        let channel = AsyncChannel::new(channel)?;
        let (message_sender, message) = oneshot::channel();
        let resized = Arc::<Notify>::default();
        let (facts_sender, facts) = oneshot::channel();
        let (frames, outgoing) = mpsc::channel(QUEUE);
        let work = Work {
            resized: Arc::clone(&resized),
            streams: Streams::new(frames.clone()),
            frames,
            channel,
            terminals_requested: AtomicUsize::new(0),
        };
        tokio::spawn(async move {
            let message = tokio::spawn(cli::read(stderr));
            work.run(input, output, outgoing, facts_sender).await;
            // In any case, the engine's client must not keep running.
            let _ = engine.start_kill();
            let _ = engine.wait().await;
            let message = message.await.ok().and_then(Result::ok);
            // Read only after a failed start.
            let _ = message_sender.send(message.unwrap_or_default());
        });
        Ok((Self { resized, message }, facts))
    }

    /// Stderr of the engine's client, after it has exited.
    pub(super) async fn last_output(self) -> String {
        self.message.await.unwrap_or_default()
    }
}

struct Work {
    resized: Arc<Notify>,
    streams: Streams,
    frames: mpsc::Sender<Frame>,
    channel: AsyncChannel,
    /// Terminals that the daemon has requested and the box has not yet opened.
    terminals_requested: AtomicUsize,
}

impl Work {
    /// Runs until one direction ends.
    async fn run(
        &self,
        input: ChildStdin,
        output: ChildStdout,
        outgoing: mpsc::Receiver<Frame>,
        facts: oneshot::Sender<Facts>,
    ) {
        let ended = tokio::select! {
            ended = self.receive_from_box(output, facts) => ended,
            ended = self.receive_from_daemon() => ended,
            ended = write(input, outgoing) => ended,
            ended = self.send_sizes() => ended,
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "the connection of a relayed box ended");
        }
        self.streams.clear();
    }

    async fn receive_from_box(
        &self,
        mut output: ChildStdout,
        facts: oneshot::Sender<Facts>,
    ) -> io::Result<()> {
        let mut facts = Some(facts);
        let mut decoder = Decoder::default();
        let mut buffer = vec![0_u8; 64 * 1024];
        let mut last_received = Instant::now();
        let mut ping = tokio::time::interval(PING_INTERVAL);
        loop {
            tokio::select! {
                read = output.read(&mut buffer) => {
                    match read? {
                        0 => return Ok(()),
                        n => decoder.push(&buffer[..n]),
                    }
                    last_received = Instant::now();
                    while let Some(frame) = decoder.next_frame().map_err(io::Error::other)? {
                        self.take(frame, &mut facts).await?;
                    }
                }
                _ = ping.tick() => {
                    if last_received.elapsed() > RECEIVE_TIMEOUT {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                    // A full queue keeps the connection alive as well.
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
            Frame::Event { message, terminal } => self.forward(&message, terminal).await,
            Frame::Facts(output) => {
                if let Some(facts) = facts.take() {
                    let _ = facts.send(output);
                }
                Ok(())
            }
            Frame::Data { stream, bytes } => {
                self.streams.data(stream, bytes).map_err(io::Error::other)
            }
            Frame::Credit { stream, bytes } => {
                self.streams.credit(stream, bytes).map_err(io::Error::other)
            }
            Frame::End { stream } | Frame::ReaderClosed { stream } => {
                self.streams.remove(stream);
                Ok(())
            }
            Frame::Pong => Ok(()),
            Frame::Request { .. } | Frame::Resize { .. } | Frame::Ping => Err(io::Error::other(
                "the box sent a frame that only the daemon may send",
            )),
        }
    }

    /// Forwards an event to the daemon, with a local terminal in place of the box's.
    async fn forward(&self, message: &FromInit, terminal: Option<u32>) -> io::Result<()> {
        let master = match terminal {
            Some(number) => {
                let one_less = |requested: usize| requested.checked_sub(1);
                self.terminals_requested
                    .fetch_update(Ordering::AcqRel, Ordering::Acquire, one_less)
                    .map_err(|_| io::Error::other("the box opened a terminal without a request"))?;
                let (master, slave) = plain_terminal()?;
                self.streams.add(number, slave, Direction::Terminal)?;
                Some(master)
            }
            None => None,
        };
        let fds = master.as_ref().map(AsFd::as_fd);
        self.channel.send(message, fds.as_slice()).await
    }

    async fn receive_from_daemon(&self) -> io::Result<()> {
        let mut next: u32 = 0;
        loop {
            let (message, fds) = match self.channel.receive::<ToInit>().await {
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
                received => received?,
            };
            if requests_terminal(&message) {
                self.terminals_requested.fetch_add(1, Ordering::AcqRel);
            }
            let mut open = Vec::new();
            let mut attachments = Vec::with_capacity(fds.len());
            for (index, fd) in fds.into_iter().enumerate() {
                let Some(direction) = direction(&message, index) else {
                    let bytes = read_whole(&fd, MAX_FILE_BYTES)?;
                    attachments.push(Attachment::File { bytes });
                    continue;
                };
                attachments.push(match direction {
                    Direction::FromBox => Attachment::Output { stream: next },
                    _ => Attachment::Input { stream: next },
                });
                open.push((direction, next, fd));
                // Numbers are reused after two billion streams.
                next = (next + 1) & (boxwood_init::FIRST_TERMINAL - 1);
            }
            // Output may arrive as soon as the request is sent; input must follow it.
            let (outputs, inputs): (Vec<_>, Vec<_>) = open
                .into_iter()
                .partition(|(direction, ..)| *direction == Direction::FromBox);
            for (direction, number, fd) in outputs {
                self.streams.add(number, fd, direction)?;
            }
            let request = Frame::Request {
                message,
                attachments,
            };
            self.frames.send(request).await.map_err(io::Error::other)?;
            for (direction, number, fd) in inputs {
                self.streams.add(number, fd, direction)?;
            }
        }
    }

    async fn send_sizes(&self) -> io::Result<()> {
        loop {
            self.resized.notified().await;
            for frame in self.streams.resized() {
                self.frames.send(frame).await.map_err(io::Error::other)?;
            }
        }
    }
}

async fn write(mut input: ChildStdin, mut outgoing: mpsc::Receiver<Frame>) -> io::Result<()> {
    while let Some(frame) = outgoing.recv().await {
        let packet = frame.encode().map_err(io::Error::other)?;
        input.write_all(&packet).await?;
        input.flush().await?;
    }
    Ok(())
}

/// The direction of the descriptor at `index`; `None` for a file.
fn direction(message: &ToInit, index: usize) -> Option<Direction> {
    let ToInit::Spawn(spawn) = message else {
        return None;
    };
    let (input, outputs) = match spawn.program {
        Program::Command {
            stdio:
                StdioPlan::Streams {
                    stdin,
                    stdout,
                    stderr,
                },
            ..
        } => (stdin, [stdout, stderr]),
        Program::FileTool { response, .. } => (None, [response, response]),
        _ => return None,
    };
    if input == Some(index) {
        Some(Direction::ToBox)
    } else {
        outputs.contains(&index).then_some(Direction::FromBox)
    }
}

fn requests_terminal(message: &ToInit) -> bool {
    let ToInit::Spawn(spawn) = message else {
        return false;
    };
    matches!(
        spawn.program,
        Program::Command {
            stdio: StdioPlan::Terminal { .. },
            ..
        }
    )
}

/// A terminal in raw mode: the box's terminal does the processing.
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
