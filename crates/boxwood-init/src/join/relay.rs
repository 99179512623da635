//! Translates between the frame stream and init's channel, and carries the bytes of every program.
//!
//! The relay has init's uid and restrictions, so commands cannot signal it. The box ends when it exits.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use boxwood_init::{
    Attachment, CHUNK, Channel, ChannelError, Decoder, FIRST_TERMINAL, Frame, FromInit, Identity,
    ToInit,
};
use boxwood_sys::clone::exit_now;
use boxwood_sys::memory::sealed_file;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::MemfdFlags;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::termios::{Winsize, tcsetwinsize};

use super::relay_stream::{Read, Stream, Written};
use crate::serve::owner;

/// The daemon sends several pings a minute. After this time without data the box ends.
const DAEMON_TIMEOUT: Duration = Duration::from_mins(1);
const POLL_TIMEOUT: Timespec = Timespec {
    tv_sec: 10,
    tv_nsec: 0,
};
/// With more unsent bytes than this, output of programs is no longer read.
const MAX_UNSENT_BYTES: usize = 1024 * 1024;

/// The engine's connection.
pub(crate) struct Wire {
    pub(crate) input: OwnedFd,
    pub(crate) output: OwnedFd,
}

struct Relay {
    wire: Wire,
    decoder: Decoder,
    init: Channel,
    identity: Identity,
    /// Encoded frames that the engine has not read yet.
    unsent: Vec<u8>,
    streams: BTreeMap<u32, Stream>,
    next_terminal: u32,
    last_received: Instant,
}

/// The relay exits, and with it the box.
struct Closed;

pub(crate) fn run(
    wire: Wire,
    decoder: Decoder,
    init: Channel,
    identity: Identity,
    first: &[Frame],
) -> ! {
    let _ = rustix::thread::set_name(c"boxwood-relay");
    let nonblocking = [wire.input.as_fd(), wire.output.as_fd(), init.as_fd()]
        .into_iter()
        .all(|fd| rustix::io::ioctl_fionbio(fd, true).is_ok());
    if !nonblocking {
        exit_now(1);
    }
    let mut relay = Relay {
        wire,
        decoder,
        init,
        identity,
        unsent: Vec::new(),
        streams: BTreeMap::new(),
        next_terminal: FIRST_TERMINAL,
        last_received: Instant::now(),
    };
    let Err(Closed) = relay.run(first);
    exit_now(0)
}

impl Relay {
    fn run(&mut self, first: &[Frame]) -> Result<Infallible, Closed> {
        for frame in first {
            self.send(frame)?;
        }
        // Frames received together with the plan.
        self.handle_frames()?;
        loop {
            self.poll_once()?;
        }
    }

    fn send(&mut self, frame: &Frame) -> Result<(), Closed> {
        self.unsent
            .extend_from_slice(&frame.encode().map_err(|_| Closed)?);
        Ok(())
    }

    /// Polls once and handles all ready descriptors.
    fn poll_once(&mut self) -> Result<(), Closed> {
        let congested = self.unsent.len() > MAX_UNSENT_BYTES;
        let mut waiting = vec![
            PollFd::new(&self.wire.input, PollFlags::IN),
            PollFd::new(&self.init, PollFlags::IN),
        ];
        let unsent = !self.unsent.is_empty();
        if unsent {
            waiting.push(PollFd::new(&self.wire.output, PollFlags::OUT));
        }
        let fixed = waiting.len();
        let mut numbers = Vec::with_capacity(self.streams.len());
        for (number, stream) in &self.streams {
            if let Some(flags) = stream.poll_flags(congested) {
                waiting.push(PollFd::from_borrowed_fd(stream.fd(), flags));
                numbers.push(*number);
            }
        }
        match poll(&mut waiting, Some(&POLL_TIMEOUT)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return Err(Closed),
        }
        let ready: Vec<PollFlags> = waiting.iter().map(PollFd::revents).collect();
        drop(waiting);
        for (number, flags) in numbers.into_iter().zip(&ready[fixed..]) {
            if !flags.is_empty() {
                self.move_bytes(number, *flags)?;
            }
        }
        if !ready[1].is_empty() {
            self.receive_from_init()?;
        }
        if !ready[0].is_empty() {
            self.receive_from_daemon()?;
        }
        if self.last_received.elapsed() > DAEMON_TIMEOUT {
            return Err(Closed);
        }
        self.flush()
    }

    fn flush(&mut self) -> Result<(), Closed> {
        let mut written = 0;
        while written < self.unsent.len() {
            match rustix::io::write(&self.wire.output, &self.unsent[written..]) {
                Ok(n) => written += n,
                Err(rustix::io::Errno::AGAIN) => break,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return Err(Closed),
            }
        }
        self.unsent.drain(..written);
        Ok(())
    }

    fn receive_from_daemon(&mut self) -> Result<(), Closed> {
        let mut buffer = vec![0_u8; 2 * CHUNK];
        match rustix::io::read(&self.wire.input, &mut buffer) {
            Ok(0) => return Err(Closed),
            Ok(n) => self.decoder.push(&buffer[..n]),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(()),
            Err(_) => return Err(Closed),
        }
        self.last_received = Instant::now();
        self.handle_frames()
    }

    fn handle_frames(&mut self) -> Result<(), Closed> {
        while let Some(frame) = self.decoder.next_frame().map_err(|_| Closed)? {
            match frame {
                Frame::Request {
                    message,
                    attachments,
                } => self.forward(&message, attachments)?,
                Frame::Data {
                    stream: number,
                    bytes,
                } => {
                    // Data for a stream that this side has just closed is dropped.
                    if let Some(stream) = self.streams.get_mut(&number) {
                        stream.take(&bytes).map_err(|_| Closed)?;
                        self.move_bytes(number, PollFlags::empty())?;
                    }
                }
                Frame::Credit {
                    stream: number,
                    bytes,
                } => {
                    if let Some(stream) = self.streams.get_mut(&number) {
                        stream.add_credit(bytes);
                    }
                }
                Frame::End { stream: number } => {
                    if let Some(stream) = self.streams.get_mut(&number) {
                        stream.end();
                        self.move_bytes(number, PollFlags::empty())?;
                    }
                }
                Frame::ReaderClosed { stream } => drop(self.streams.remove(&stream)),
                Frame::Resize { stream, rows, cols } => self.resize(stream, rows, cols),
                Frame::Ping => self.send(&Frame::Pong)?,
                Frame::Event { .. } | Frame::Facts(_) | Frame::Pong => return Err(Closed),
            }
        }
        Ok(())
    }

    fn resize(&self, stream: u32, rows: u16, cols: u16) {
        if let Some(terminal) = self.streams.get(&stream) {
            let size = Winsize {
                ws_row: rows,
                ws_col: cols,
                ws_xpixel: 0,
                ws_ypixel: 0,
            };
            // Fails if the terminal has hung up.
            let _ = tcsetwinsize(terminal.fd(), size);
        }
    }

    /// Sends a message to init with descriptors in place of the attachments.
    fn forward(&mut self, message: &ToInit, attachments: Vec<Attachment>) -> Result<(), Closed> {
        let mut numbers = Vec::new();
        let opened: rustix::io::Result<Vec<OwnedFd>> = attachments
            .into_iter()
            .map(|attachment| match attachment {
                Attachment::Input { stream } => {
                    let (init_end, relay_end) = self.pipe()?;
                    numbers.push(stream);
                    self.streams.insert(stream, Stream::to_program(relay_end)?);
                    Ok(init_end)
                }
                Attachment::Output { stream } => {
                    let (relay_end, init_end) = self.pipe()?;
                    numbers.push(stream);
                    self.streams
                        .insert(stream, Stream::from_program(relay_end)?);
                    Ok(init_end)
                }
                Attachment::File { bytes } => sealed_file("script", MemfdFlags::empty(), &bytes),
            })
            .collect();
        let fds = match (opened, message) {
            (Ok(fds), _) => fds,
            (Err(errno), ToInit::Spawn(spawn)) => {
                // Close the streams that were opened, on both sides.
                for stream in numbers {
                    self.streams.remove(&stream);
                    self.send(&Frame::End { stream })?;
                }
                let message = FromInit::SpawnFailed {
                    id: spawn.id,
                    step: "open the program's streams".to_owned(),
                    errno: errno.raw_os_error(),
                };
                return self.send(&Frame::Event {
                    message,
                    terminal: None,
                });
            }
            (Err(_), _) => return Err(Closed),
        };
        let borrowed: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
        loop {
            match self.init.send(message, &borrowed) {
                Ok(()) => return Ok(()),
                Err(ChannelError::WouldBlock) => {
                    let mut writable = [PollFd::new(&self.init, PollFlags::OUT)];
                    let _ = poll(&mut writable, Some(&POLL_TIMEOUT));
                }
                Err(_) => return Err(Closed),
            }
        }
    }

    /// Owned by the commands' user, so that commands can open `/dev/stdout`.
    fn pipe(&self) -> rustix::io::Result<(OwnedFd, OwnedFd)> {
        owner::as_command(&self.identity, || pipe_with(PipeFlags::CLOEXEC))
            .map_err(|_| rustix::io::Errno::PERM)?
    }

    fn receive_from_init(&mut self) -> Result<(), Closed> {
        let (message, mut fds) = match self.init.receive::<FromInit>() {
            Ok(received) => received,
            Err(ChannelError::WouldBlock) => return Ok(()),
            Err(_) => return Err(Closed),
        };
        let terminal = match fds.pop() {
            Some(master) => {
                let number = self.next_terminal;
                self.next_terminal = number.checked_add(1).ok_or(Closed)?;
                let stream = Stream::terminal(master).map_err(|_| Closed)?;
                self.streams.insert(number, stream);
                Some(number)
            }
            None => None,
        };
        self.send(&Frame::Event { message, terminal })
    }

    fn move_bytes(&mut self, number: u32, flags: PollFlags) -> Result<(), Closed> {
        let Some(stream) = self.streams.get_mut(&number) else {
            return Ok(());
        };
        let mut closed = false;
        let mut frames = Vec::new();
        if flags.intersects(PollFlags::IN | PollFlags::HUP) {
            match stream.read() {
                Read::Bytes(bytes) => frames.push(Frame::Data {
                    stream: number,
                    bytes,
                }),
                Read::Nothing => {}
                Read::End => {
                    frames.push(Frame::End { stream: number });
                    closed = true;
                }
            }
        }
        if !closed {
            match stream.write(flags) {
                Written::Bytes(0) => {}
                Written::Bytes(bytes) => frames.push(Frame::Credit {
                    stream: number,
                    bytes,
                }),
                Written::All { last } => {
                    if last > 0 {
                        frames.push(Frame::Credit {
                            stream: number,
                            bytes: last,
                        });
                    }
                    closed = true;
                }
                Written::ReaderClosed => {
                    frames.push(Frame::ReaderClosed { stream: number });
                    closed = true;
                }
            }
        }
        if closed {
            self.streams.remove(&number);
        }
        for frame in frames {
            self.send(&frame)?;
        }
        Ok(())
    }
}
