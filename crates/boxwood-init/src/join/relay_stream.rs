//! A pipe or terminal of a program at the relay, with its flow control window.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use boxwood_init::{CHUNK, WINDOW};
use rustix::event::PollFlags;
use rustix::io::Errno;

pub(crate) struct Stream {
    fd: OwnedFd,
    reads: bool,
    writes: bool,
    /// Bytes that may be sent to the daemon.
    window: usize,
    /// Bytes that the program has not read yet; at most one window.
    waiting: VecDeque<u8>,
    ended: bool,
}

pub(crate) enum Read {
    Bytes(Vec<u8>),
    Nothing,
    End,
}

pub(crate) enum Written {
    Bytes(usize),
    /// All bytes up to the end of the stream.
    All {
        last: usize,
    },
    ReaderClosed,
}

/// The daemon sent more than the window allows.
#[derive(Debug)]
pub(crate) struct Overrun;

impl Stream {
    fn new(fd: OwnedFd, reads: bool, writes: bool) -> rustix::io::Result<Self> {
        rustix::io::ioctl_fionbio(&fd, true)?;
        Ok(Self {
            fd,
            reads,
            writes,
            window: WINDOW,
            waiting: VecDeque::new(),
            ended: false,
        })
    }

    pub(crate) fn to_program(fd: OwnedFd) -> rustix::io::Result<Self> {
        Self::new(fd, false, true)
    }

    pub(crate) fn from_program(fd: OwnedFd) -> rustix::io::Result<Self> {
        Self::new(fd, true, false)
    }

    pub(crate) fn terminal(fd: OwnedFd) -> rustix::io::Result<Self> {
        Self::new(fd, true, true)
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Events to poll for. `None` excludes the descriptor, because a pending HUP would end every poll at once.
    pub(crate) fn poll_flags(&self, congested: bool) -> Option<PollFlags> {
        let mut flags = PollFlags::empty();
        if self.reads && self.window > 0 && !congested {
            flags |= PollFlags::IN;
        }
        if !self.waiting.is_empty() {
            flags |= PollFlags::OUT;
        }
        // ERR, which reports a closed reader, is always polled.
        let only_writes = self.writes && !self.reads;
        (only_writes || !flags.is_empty()).then_some(flags)
    }

    pub(crate) fn add_credit(&mut self, bytes: usize) {
        self.window = self.window.saturating_add(bytes).min(WINDOW);
    }

    pub(crate) fn take(&mut self, bytes: &[u8]) -> Result<(), Overrun> {
        if !self.writes || self.waiting.len() + bytes.len() > WINDOW {
            return Err(Overrun);
        }
        self.waiting.extend(bytes);
        Ok(())
    }

    pub(crate) fn end(&mut self) {
        self.ended = true;
    }

    pub(crate) fn read(&mut self) -> Read {
        let max_bytes = self.window.min(CHUNK);
        if !self.reads || max_bytes == 0 {
            return Read::Nothing;
        }
        let mut buffer = vec![0_u8; max_bytes];
        match rustix::io::read(&self.fd, &mut buffer) {
            // A terminal whose slave is closed reports EIO.
            Ok(0) | Err(Errno::IO) => Read::End,
            Ok(n) => {
                self.window -= n;
                buffer.truncate(n);
                Read::Bytes(buffer)
            }
            Err(Errno::AGAIN | Errno::INTR) => Read::Nothing,
            Err(_) => Read::End,
        }
    }

    pub(crate) fn write(&mut self, flags: PollFlags) -> Written {
        if !self.writes {
            return Written::Bytes(0);
        }
        if !self.reads && flags.contains(PollFlags::ERR) {
            return Written::ReaderClosed;
        }
        let mut done = 0;
        while !self.waiting.is_empty() {
            let (front, _) = self.waiting.as_slices();
            match rustix::io::write(&self.fd, front) {
                Ok(n) => {
                    self.waiting.drain(..n);
                    done += n;
                }
                Err(Errno::AGAIN) => return Written::Bytes(done),
                Err(Errno::INTR) => {}
                // Input for a terminal that has hung up is lost.
                Err(_) if self.reads => {
                    done += self.waiting.len();
                    self.waiting.clear();
                }
                Err(_) => return Written::ReaderClosed,
            }
        }
        if self.ended {
            Written::All { last: done }
        } else {
            Written::Bytes(done)
        }
    }
}
