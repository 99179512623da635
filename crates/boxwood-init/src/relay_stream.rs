//! One program's pipe or terminal, at the relay: how much may go, how much waits.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use boxwood_init::{CHUNK, WINDOW};
use rustix::event::PollFlags;
use rustix::io::Errno;

pub(crate) struct Stream {
    fd: OwnedFd,
    reads: bool,
    writes: bool,
    /// How many bytes the other side has room for.
    room: usize,
    /// What the program has not taken yet; never more than a window.
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
    /// Everything there will ever be.
    All {
        last: usize,
    },
    NobodyReads,
}

/// More came than there was room for.
#[derive(Debug)]
pub(crate) struct Overrun;

impl Stream {
    fn new(fd: OwnedFd, reads: bool, writes: bool) -> rustix::io::Result<Self> {
        rustix::io::ioctl_fionbio(&fd, true)?;
        Ok(Self {
            fd,
            reads,
            writes,
            room: WINDOW,
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

    /// What to wait for; `None` where even a look would find the same again and again.
    pub(crate) fn wants(&self, crowded: bool) -> Option<PollFlags> {
        let mut wants = PollFlags::empty();
        if self.reads && self.room > 0 && !crowded {
            wants |= PollFlags::IN;
        }
        if !self.waiting.is_empty() {
            wants |= PollFlags::OUT;
        }
        // A pipe to a program tells unasked that its reader has gone.
        let only_writes = self.writes && !self.reads;
        (only_writes || !wants.is_empty()).then_some(wants)
    }

    pub(crate) fn may_send(&mut self, bytes: usize) {
        self.room = self.room.saturating_add(bytes).min(WINDOW);
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
        let most = self.room.min(CHUNK);
        if !self.reads || most == 0 {
            return Read::Nothing;
        }
        let mut buffer = vec![0_u8; most];
        match rustix::io::read(&self.fd, &mut buffer) {
            // A terminal that nobody has open any more says so by an error.
            Ok(0) | Err(Errno::IO) => Read::End,
            Ok(n) => {
                self.room -= n;
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
            return Written::NobodyReads;
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
                // What a terminal does not take is lost, as on any other that has hung up.
                Err(_) if self.reads => {
                    done += self.waiting.len();
                    self.waiting.clear();
                }
                Err(_) => return Written::NobodyReads,
            }
        }
        if self.ended {
            Written::All { last: done }
        } else {
            Written::Bytes(done)
        }
    }
}
