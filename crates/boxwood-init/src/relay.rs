//! Between the stream of frames and init: bytes of every program go through here.
//!
//! Comes in: frames from outside, messages from init, bytes from programs. Goes out: the same in the
//! other form. Never here: what a program is; init starts and ends them. It has init's uid and fences,
//! so no command can touch it, and when it ends the box ends.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use boxwood_init::{
    CHUNK, Carried, Channel, ChannelError, Decoder, FIRST_TERMINAL, Frame, FromInit, Identity,
    ToInit,
};
use boxwood_sys::clone::exit_now;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::owner;
use crate::relay_stream::{Read, Stream, Written};

/// The daemon speaks several times a minute. One that is silent for so long is gone, or its
/// connection is, and its boxes have nobody.
const SILENCE: Duration = Duration::from_mins(1);
const LOOK: Timespec = Timespec {
    tv_sec: 10,
    tv_nsec: 0,
};
/// With so much waiting to go out, programs wait too.
const CROWDED: usize = 1024 * 1024;

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
    /// What the engine has not taken yet.
    leaving: Vec<u8>,
    streams: BTreeMap<u32, Stream>,
    next_terminal: u32,
    heard: Instant,
}

/// Why the box ends.
struct Over;

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
        leaving: Vec::new(),
        streams: BTreeMap::new(),
        next_terminal: FIRST_TERMINAL,
        heard: Instant::now(),
    };
    let Err(Over) = relay.carry(first);
    exit_now(0)
}

impl Relay {
    fn carry(&mut self, first: &[Frame]) -> Result<Infallible, Over> {
        for frame in first {
            self.say(frame)?;
        }
        // What came along with the plan.
        self.obey()?;
        loop {
            self.turn()?;
        }
    }

    fn say(&mut self, frame: &Frame) -> Result<(), Over> {
        self.leaving
            .extend_from_slice(&frame.encode().map_err(|_| Over)?);
        Ok(())
    }

    /// One look at everything, and what follows from it.
    fn turn(&mut self) -> Result<(), Over> {
        let crowded = self.leaving.len() > CROWDED;
        let mut waiting = vec![
            PollFd::new(&self.wire.input, PollFlags::IN),
            PollFd::new(&self.init, PollFlags::IN),
        ];
        let leaving = !self.leaving.is_empty();
        if leaving {
            waiting.push(PollFd::new(&self.wire.output, PollFlags::OUT));
        }
        let fixed = waiting.len();
        let mut numbers = Vec::with_capacity(self.streams.len());
        for (number, stream) in &self.streams {
            if let Some(wants) = stream.wants(crowded) {
                waiting.push(PollFd::from_borrowed_fd(stream.fd(), wants));
                numbers.push(*number);
            }
        }
        match poll(&mut waiting, Some(&LOOK)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return Err(Over),
        }
        let ready: Vec<PollFlags> = waiting.iter().map(PollFd::revents).collect();
        drop(waiting);
        for (number, flags) in numbers.into_iter().zip(&ready[fixed..]) {
            if !flags.is_empty() {
                self.move_bytes(number, *flags)?;
            }
        }
        if !ready[1].is_empty() {
            self.hear_init()?;
        }
        if !ready[0].is_empty() {
            self.hear_daemon()?;
        }
        if self.heard.elapsed() > SILENCE {
            return Err(Over);
        }
        self.flush()
    }

    fn flush(&mut self) -> Result<(), Over> {
        let mut gone = 0;
        while gone < self.leaving.len() {
            match rustix::io::write(&self.wire.output, &self.leaving[gone..]) {
                Ok(n) => gone += n,
                Err(rustix::io::Errno::AGAIN) => break,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return Err(Over),
            }
        }
        self.leaving.drain(..gone);
        Ok(())
    }

    fn hear_daemon(&mut self) -> Result<(), Over> {
        let mut buffer = vec![0_u8; 2 * CHUNK];
        match rustix::io::read(&self.wire.input, &mut buffer) {
            Ok(0) => return Err(Over),
            Ok(n) => self.decoder.push(&buffer[..n]),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(()),
            Err(_) => return Err(Over),
        }
        self.heard = Instant::now();
        self.obey()
    }

    fn obey(&mut self) -> Result<(), Over> {
        while let Some(frame) = self.decoder.next_frame().map_err(|_| Over)? {
            match frame {
                Frame::Order { message, carried } => self.order(&message, carried)?,
                Frame::Data { stream, bytes } => {
                    // Streams end on both sides at once; what crossed the end is nobody's.
                    if let Some(known) = self.streams.get_mut(&stream) {
                        known.take(&bytes).map_err(|_| Over)?;
                        self.move_bytes(stream, PollFlags::empty())?;
                    }
                }
                Frame::Credit { stream, bytes } => {
                    if let Some(known) = self.streams.get_mut(&stream) {
                        known.may_send(bytes);
                    }
                }
                Frame::End { stream } => {
                    if let Some(known) = self.streams.get_mut(&stream) {
                        known.end();
                        self.move_bytes(stream, PollFlags::empty())?;
                    }
                }
                Frame::Gone { stream } => drop(self.streams.remove(&stream)),
                Frame::Resize { stream, rows, cols } => self.resize(stream, rows, cols),
                Frame::Ping => self.say(&Frame::Here)?,
                Frame::Event { .. } | Frame::Facts(_) | Frame::Here => return Err(Over),
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
            // A terminal that has hung up has no size.
            let _ = tcsetwinsize(terminal.fd(), size);
        }
    }

    /// Hands a message to init, with real descriptors in the place of what was carried.
    fn order(&mut self, message: &ToInit, carried: Vec<Carried>) -> Result<(), Over> {
        let mut numbers = Vec::new();
        let made: rustix::io::Result<Vec<OwnedFd>> = carried
            .into_iter()
            .map(|carried| match carried {
                Carried::Input { stream } => {
                    let (theirs, ours) = self.pipe()?;
                    numbers.push(stream);
                    self.streams.insert(stream, Stream::to_program(ours)?);
                    Ok(theirs)
                }
                Carried::Output { stream } => {
                    let (ours, theirs) = self.pipe()?;
                    numbers.push(stream);
                    self.streams.insert(stream, Stream::from_program(ours)?);
                    Ok(theirs)
                }
                Carried::File { bytes } => file(&bytes),
            })
            .collect();
        let fds = match (made, message) {
            (Ok(fds), _) => fds,
            (Err(errno), ToInit::Spawn(spawn)) => {
                // Whatever was opened closes again, on both sides.
                for stream in numbers {
                    self.streams.remove(&stream);
                    self.say(&Frame::End { stream })?;
                }
                let message = FromInit::SpawnFailed {
                    id: spawn.id,
                    step: "open its streams".to_owned(),
                    errno: errno.raw_os_error(),
                };
                return self.say(&Frame::Event {
                    message,
                    terminal: None,
                });
            }
            (Err(_), _) => return Err(Over),
        };
        let borrowed: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
        loop {
            match self.init.send(message, &borrowed) {
                Ok(()) => return Ok(()),
                Err(ChannelError::WouldBlock) => {
                    let mut room = [PollFd::new(&self.init, PollFlags::OUT)];
                    let _ = poll(&mut room, Some(&LOOK));
                }
                Err(_) => return Err(Over),
            }
        }
    }

    /// Both ends are the commands': what opens `/dev/stdout` must be allowed to.
    fn pipe(&self) -> rustix::io::Result<(OwnedFd, OwnedFd)> {
        owner::as_command(&self.identity, || pipe_with(PipeFlags::CLOEXEC))
            .map_err(|_| rustix::io::Errno::PERM)?
    }

    fn hear_init(&mut self) -> Result<(), Over> {
        let (message, mut fds) = match self.init.receive::<FromInit>() {
            Ok(heard) => heard,
            Err(ChannelError::WouldBlock) => return Ok(()),
            Err(_) => return Err(Over),
        };
        let terminal = match fds.pop() {
            Some(master) => {
                let number = self.next_terminal;
                self.next_terminal = number.checked_add(1).ok_or(Over)?;
                let stream = Stream::terminal(master).map_err(|_| Over)?;
                self.streams.insert(number, stream);
                Some(number)
            }
            None => None,
        };
        self.say(&Frame::Event { message, terminal })
    }

    fn move_bytes(&mut self, number: u32, flags: PollFlags) -> Result<(), Over> {
        let Some(stream) = self.streams.get_mut(&number) else {
            return Ok(());
        };
        let mut gone = false;
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
                    gone = true;
                }
            }
        }
        if !gone {
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
                    gone = true;
                }
                Written::NobodyReads => {
                    frames.push(Frame::Gone { stream: number });
                    gone = true;
                }
            }
        }
        if gone {
            self.streams.remove(&number);
        }
        for frame in frames {
            self.say(&frame)?;
        }
        Ok(())
    }
}

/// A file in memory that nobody can change any more.
fn file(bytes: &[u8]) -> rustix::io::Result<OwnedFd> {
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
