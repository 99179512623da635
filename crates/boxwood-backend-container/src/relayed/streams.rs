//! The streams of one relayed box: each is a local descriptor and a number on the wire. Flow control by
//! credit.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use boxwood_init::{CHUNK, Frame, InvalidFrame, WINDOW};
use boxwood_local::lock;
use rustix::io::retry_on_intr;
use rustix::termios::tcgetwinsize;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::AbortHandle;

type Fd = Arc<AsyncFd<OwnedFd>>;

#[derive(Clone)]
pub(super) struct Streams {
    streams: Arc<Mutex<HashMap<u32, Stream>>>,
    frames: mpsc::Sender<Frame>,
}

struct Stream {
    /// Credit granted by the box.
    credit: Arc<Semaphore>,
    /// Received bytes that are not written yet. More than a window is a protocol error.
    unwritten: Arc<AtomicUsize>,
    incoming: Option<mpsc::UnboundedSender<Vec<u8>>>,
    reader: Option<AbortOnDrop>,
    terminal: Option<(Fd, (u16, u16))>,
}

/// Which way the bytes of a stream go; both ways for a terminal.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    ToBox,
    FromBox,
    Terminal,
}

/// Aborts a task when dropped.
struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Streams {
    pub(super) fn new(frames: mpsc::Sender<Frame>) -> Self {
        Self {
            streams: Arc::default(),
            frames,
        }
    }

    /// Connects `fd` with a stream of the box.
    pub(super) fn add(&self, number: u32, fd: OwnedFd, direction: Direction) -> io::Result<()> {
        let fd = nonblocking(fd)?;
        let mut stream = Stream::new();
        // Locked before the tasks start: one that ends at once removes its stream, which must be in the map by then.
        let mut streams = lock(&self.streams);
        if direction != Direction::ToBox {
            stream.incoming = Some(self.write(number, Arc::clone(&fd), &stream.unwritten));
        }
        if direction != Direction::FromBox {
            stream.reader = Some(self.read(number, Arc::clone(&fd), &stream.credit));
        }
        if direction == Direction::Terminal {
            stream.terminal = Some((fd, (0, 0)));
        }
        streams.insert(number, stream);
        Ok(())
    }

    pub(super) fn data(&self, number: u32, bytes: Vec<u8>) -> Result<(), InvalidFrame> {
        // The window does not limit the number of empty chunks, so none is queued. The relay in the box sends none.
        if bytes.is_empty() {
            return Err(InvalidFrame);
        }
        let streams = lock(&self.streams);
        // Data that arrives after the end of a stream is discarded.
        let Some(stream) = streams.get(&number) else {
            return Ok(());
        };
        let Some(incoming) = &stream.incoming else {
            return Err(InvalidFrame);
        };
        let before = stream.unwritten.fetch_add(bytes.len(), Ordering::AcqRel);
        if before + bytes.len() > WINDOW {
            return Err(InvalidFrame);
        }
        // A writer that has ended has sent `ReaderClosed`.
        let _ = incoming.send(bytes);
        Ok(())
    }

    pub(super) fn credit(&self, number: u32, bytes: usize) -> Result<(), InvalidFrame> {
        if let Some(stream) = lock(&self.streams).get(&number) {
            if stream.credit.available_permits() + bytes > WINDOW {
                return Err(InvalidFrame);
            }
            stream.credit.add_permits(bytes);
        }
        Ok(())
    }

    /// The box has closed the stream. Received bytes are still written.
    pub(super) fn remove(&self, number: u32) {
        drop(lock(&self.streams).remove(&number));
    }

    /// New sizes of terminals that were not yet sent to the box.
    pub(super) fn resized(&self) -> Vec<Frame> {
        let mut frames = Vec::new();
        for (number, stream) in lock(&self.streams).iter_mut() {
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
        lock(&self.streams).clear();
    }

    fn read(&self, number: u32, fd: Fd, credit: &Arc<Semaphore>) -> AbortOnDrop {
        let (frames, credit) = (self.frames.clone(), Arc::clone(credit));
        let streams = Arc::downgrade(&self.streams);
        let task = tokio::spawn(async move {
            let last = read_all(number, &fd, &credit, &frames).await;
            let _ = frames.send(last).await;
            let Some(streams) = streams.upgrade() else {
                return;
            };
            let mut streams = lock(&streams);
            // The other direction of a terminal continues until the box closes it. Removing the stream
            // aborts this task, which is finished anyway.
            let ended = streams.get(&number);
            if ended.is_some_and(|stream| stream.terminal.is_none()) {
                streams.remove(&number);
            }
        });
        AbortOnDrop(task.abort_handle())
    }

    fn write(
        &self,
        number: u32,
        fd: Fd,
        unwritten: &Arc<AtomicUsize>,
    ) -> mpsc::UnboundedSender<Vec<u8>> {
        let (incoming, mut incoming_bytes) = mpsc::unbounded_channel::<Vec<u8>>();
        let (frames, unwritten) = (self.frames.clone(), Arc::clone(unwritten));
        let streams = Arc::downgrade(&self.streams);
        // Not aborted with the stream: received bytes still have to be written.
        tokio::spawn(async move {
            while let Some(bytes) = incoming_bytes.recv().await {
                if write_all(&fd, &bytes).await.is_err() {
                    if let Some(streams) = streams.upgrade() {
                        lock(&streams).remove(&number);
                    }
                    let _ = frames.send(Frame::ReaderClosed { stream: number }).await;
                    return;
                }
                unwritten.fetch_sub(bytes.len(), Ordering::AcqRel);
                let credit = Frame::Credit {
                    stream: number,
                    bytes: bytes.len(),
                };
                // If the box is gone, the rest is written anyway.
                let _ = frames.send(credit).await;
            }
        });
        incoming
    }
}

impl Stream {
    fn new() -> Self {
        Self {
            credit: Arc::new(Semaphore::new(WINDOW)),
            unwritten: Arc::default(),
            incoming: None,
            reader: None,
            terminal: None,
        }
    }
}

fn nonblocking(fd: OwnedFd) -> io::Result<Fd> {
    rustix::io::ioctl_fionbio(&fd, true)?;
    Ok(Arc::new(boxwood_local::async_fd(fd)?))
}

/// Reads until the end, limited by credit. Returns the last frame of the stream.
async fn read_all(number: u32, fd: &Fd, credit: &Semaphore, frames: &mpsc::Sender<Frame>) -> Frame {
    let end = Frame::End { stream: number };
    loop {
        let Ok(first) = credit.acquire().await else {
            return end;
        };
        let max_bytes = CHUNK.min(credit.available_permits() + 1);
        let bytes = match read(fd, max_bytes).await {
            Ok(bytes) if !bytes.is_empty() => bytes,
            _ => return end,
        };
        first.forget();
        let rest = u32::try_from(bytes.len() - 1).unwrap_or(u32::MAX);
        // Cannot fail: only this task takes from this semaphore.
        if let Ok(rest) = credit.try_acquire_many(rest) {
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

async fn read(fd: &Fd, max_bytes: usize) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0_u8; max_bytes];
    let read = |fd: &OwnedFd| Ok(retry_on_intr(|| rustix::io::read(fd, &mut buffer))?);
    let read = fd.async_io(Interest::READABLE, read).await?;
    buffer.truncate(read);
    Ok(buffer)
}

async fn write_all(fd: &Fd, bytes: &[u8]) -> io::Result<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        let write = |fd: &OwnedFd| Ok(retry_on_intr(|| rustix::io::write(fd, rest))?);
        rest = &rest[fd.async_io(Interest::WRITABLE, write).await?..];
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_chunks_are_rejected() {
        let (frames, _outgoing) = mpsc::channel(1);
        assert_eq!(Streams::new(frames).data(0, Vec::new()), Err(InvalidFrame));
    }
}
