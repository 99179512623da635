//! The streams of one box at the daemon: each a descriptor on this side and a number on the wire.
//!
//! Comes in: descriptors that init would have been given, and frames. Goes out: bytes, as fast as each
//! reader takes them and no faster. Never here: messages.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use boxwood_init::{CHUNK, Frame, Garbled, WINDOW};
use rustix::io::Errno;
use rustix::termios::tcgetwinsize;
use tokio::io::unix::AsyncFd;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::AbortHandle;

type Fd = Arc<AsyncFd<OwnedFd>>;

#[derive(Clone)]
pub(super) struct Streams {
    known: Arc<Mutex<HashMap<u32, Stream>>>,
    frames: mpsc::Sender<Frame>,
}

struct Stream {
    /// Room that the box has made for us.
    room: Arc<Semaphore>,
    /// What came and has not been taken; a box that sends more than a window breaks the rules.
    held: Arc<AtomicUsize>,
    arrived: Option<mpsc::UnboundedSender<Vec<u8>>>,
    reader: Option<Ended>,
    terminal: Option<(Fd, (u16, u16))>,
}

/// A task that ends with whoever holds this.
struct Ended(AbortHandle);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Streams {
    pub(super) fn new(frames: mpsc::Sender<Frame>) -> Self {
        Self {
            known: Arc::default(),
            frames,
        }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<u32, Stream>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything that is read from `fd` goes to the box.
    pub(super) fn send_from(&self, number: u32, fd: OwnedFd) -> io::Result<()> {
        let fd = watched(fd)?;
        let mut stream = Stream::new();
        stream.reader = Some(self.read(number, fd, &stream.room));
        self.known().insert(number, stream);
        Ok(())
    }

    /// Everything that comes from the box is written to `fd`.
    pub(super) fn write_to(&self, number: u32, fd: OwnedFd) -> io::Result<()> {
        let fd = watched(fd)?;
        let mut stream = Stream::new();
        stream.arrived = Some(self.write(number, fd, &stream.held));
        self.known().insert(number, stream);
        Ok(())
    }

    /// Both, for a terminal.
    pub(super) fn join(&self, number: u32, fd: OwnedFd) -> io::Result<()> {
        let fd = watched(fd)?;
        let mut stream = Stream::new();
        stream.arrived = Some(self.write(number, Arc::clone(&fd), &stream.held));
        stream.reader = Some(self.read(number, Arc::clone(&fd), &stream.room));
        stream.terminal = Some((fd, (0, 0)));
        self.known().insert(number, stream);
        Ok(())
    }

    pub(super) fn data(&self, number: u32, bytes: Vec<u8>) -> Result<(), Garbled> {
        let known = self.known();
        // What crossed the end of a stream is nobody's.
        let Some(stream) = known.get(&number) else {
            return Ok(());
        };
        let Some(arrived) = &stream.arrived else {
            return Err(Garbled);
        };
        let before = stream.held.fetch_add(bytes.len(), Ordering::AcqRel);
        if before + bytes.len() > WINDOW {
            return Err(Garbled);
        }
        // A writer that has ended says so itself.
        let _ = arrived.send(bytes);
        Ok(())
    }

    pub(super) fn credit(&self, number: u32, bytes: usize) -> Result<(), Garbled> {
        if let Some(stream) = self.known().get(&number) {
            if stream.room.available_permits() + bytes > WINDOW {
                return Err(Garbled);
            }
            stream.room.add_permits(bytes);
        }
        Ok(())
    }

    /// The box has ended it, or takes no more. What has come is still written.
    pub(super) fn remove(&self, number: u32) {
        drop(self.known().remove(&number));
    }

    /// Sizes that terminals have now and the box does not know yet.
    pub(super) fn resized(&self) -> Vec<Frame> {
        let mut frames = Vec::new();
        for (number, stream) in self.known().iter_mut() {
            let Some((fd, before)) = &mut stream.terminal else {
                continue;
            };
            if let Ok(size) = tcgetwinsize(fd.get_ref())
                && (size.ws_row, size.ws_col) != *before
            {
                *before = (size.ws_row, size.ws_col);
                frames.push(Frame::Resize {
                    stream: *number,
                    rows: size.ws_row,
                    cols: size.ws_col,
                });
            }
        }
        frames
    }

    pub(super) fn clear(&self) {
        self.known().clear();
    }

    fn read(&self, number: u32, fd: Fd, room: &Arc<Semaphore>) -> Ended {
        let (frames, room) = (self.frames.clone(), Arc::clone(room));
        let known = Arc::downgrade(&self.known);
        let task = tokio::spawn(async move {
            let last = read_all(number, &fd, &room, &frames).await;
            let _ = frames.send(last).await;
            let Some(known) = known.upgrade() else {
                return;
            };
            let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
            // A terminal's other direction goes on until the box hangs up. Removing the stream ends
            // this task, which has nothing left to do.
            let ended = known.get(&number);
            if ended.is_some_and(|stream| stream.terminal.is_none()) {
                known.remove(&number);
            }
        });
        Ended(task.abort_handle())
    }

    fn write(
        &self,
        number: u32,
        fd: Fd,
        held: &Arc<AtomicUsize>,
    ) -> mpsc::UnboundedSender<Vec<u8>> {
        let (arrived, mut arriving) = mpsc::unbounded_channel::<Vec<u8>>();
        let (frames, held) = (self.frames.clone(), Arc::clone(held));
        let known = Arc::downgrade(&self.known);
        // Not ended with the stream: what has come is still to be written.
        tokio::spawn(async move {
            while let Some(bytes) = arriving.recv().await {
                if write_all(&fd, &bytes).await.is_err() {
                    if let Some(known) = known.upgrade() {
                        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
                        known.remove(&number);
                    }
                    let _ = frames.send(Frame::Gone { stream: number }).await;
                    return;
                }
                held.fetch_sub(bytes.len(), Ordering::AcqRel);
                let credit = Frame::Credit {
                    stream: number,
                    bytes: bytes.len(),
                };
                // Where the box is gone meanwhile, the rest is written all the same.
                let _ = frames.send(credit).await;
            }
        });
        arrived
    }
}

impl Stream {
    fn new() -> Self {
        Self {
            room: Arc::new(Semaphore::new(WINDOW)),
            held: Arc::default(),
            arrived: None,
            reader: None,
            terminal: None,
        }
    }
}

fn watched(fd: OwnedFd) -> io::Result<Fd> {
    rustix::io::ioctl_fionbio(&fd, true)?;
    Ok(Arc::new(boxwood_local::watch(fd)?))
}

/// Reads to the end, as far as the box has room; the last frame of the stream.
async fn read_all(number: u32, fd: &Fd, room: &Semaphore, frames: &mpsc::Sender<Frame>) -> Frame {
    let end = Frame::End { stream: number };
    loop {
        let Ok(first) = room.acquire().await else {
            return end;
        };
        let most = CHUNK.min(room.available_permits() + 1);
        let bytes = match read(fd, most).await {
            Ok(bytes) if !bytes.is_empty() => bytes,
            _ => return end,
        };
        first.forget();
        let rest = u32::try_from(bytes.len() - 1).unwrap_or(u32::MAX);
        // There: nobody else takes from this room.
        if let Ok(rest) = room.try_acquire_many(rest) {
            rest.forget();
        }
        let data = Frame::Data {
            stream: number,
            bytes,
        };
        if frames.send(data).await.is_err() {
            return end;
        }
    }
}

async fn read(fd: &Fd, most: usize) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0_u8; most];
    loop {
        let mut ready = fd.readable().await?;
        match rustix::io::read(fd.get_ref(), &mut buffer) {
            Ok(n) => {
                buffer.truncate(n);
                return Ok(buffer);
            }
            Err(Errno::AGAIN) => ready.clear_ready(),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

async fn write_all(fd: &Fd, bytes: &[u8]) -> io::Result<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        let mut ready = fd.writable().await?;
        match rustix::io::write(fd.get_ref(), rest) {
            Ok(n) => rest = &rest[n..],
            Err(Errno::AGAIN) => ready.clear_ready(),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}
