//! The spawner: a single-threaded process that forks on behalf of the daemon.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

use boxwood_init::{Channel, ChannelError, FromSpawner, ToSpawner};
use boxwood_sys::memory::sealed_file;
use rustix::fs::MemfdFlags;
use rustix::io::Errno;

use crate::lock;

pub struct Spawner {
    /// `None` once it has ended.
    running: Mutex<Option<(Channel, Child)>>,
}

pub struct SpawnedProcess {
    pub pid: i32,
    pub pidfd: OwnedFd,
}

impl Spawner {
    pub(crate) fn start() -> io::Result<Self> {
        let (channel, spawner_channel) = Channel::pair()?;
        let program = program()?;
        let process = Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()))
            .env_clear()
            .current_dir("/")
            .stdin(OwnedFd::from(spawner_channel))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self {
            running: Mutex::new(Some((channel, process))),
        })
    }

    /// Requests a process; `inner` is its end of a channel. Blocks for about a millisecond.
    pub fn spawn(&self, request: ToSpawner, inner: &Channel) -> io::Result<SpawnedProcess> {
        let running = lock(&self.running);
        let (channel, _) = running
            .as_ref()
            .ok_or_else(|| io::Error::other("the spawner has ended"))?;
        channel.send(&request, &[inner.as_fd()]).map_err(into_io)?;
        let (answer, mut fds) = channel.receive::<FromSpawner>().map_err(into_io)?;
        match (answer, fds.pop()) {
            (FromSpawner::Started { pid }, Some(pidfd)) => Ok(SpawnedProcess { pid, pidfd }),
            (FromSpawner::Started { .. }, None) => {
                Err(io::Error::other("the spawner sent no pidfd"))
            }
            (FromSpawner::Failed { errno }, _) => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    /// Closes the channel, which ends the spawner. Returns the process on the first call.
    fn close(&self) -> Option<Child> {
        let (_channel, process) = lock(&self.running).take()?;
        Some(process)
    }

    /// Ends the spawner and waits for it.
    pub(crate) async fn end(&self) {
        if let Some(mut process) = self.close() {
            let _ = tokio::task::spawn_blocking(move || process.wait()).await;
        }
    }
}

impl Drop for Spawner {
    fn drop(&mut self) {
        if let Some(mut process) = self.close() {
            // The spawner exits when its channel closes.
            let _ = process.wait();
        }
    }
}

/// The init program as a sealed memfd, so that no file on disk can replace it.
pub fn program() -> io::Result<File> {
    let sealed = |flags| sealed_file("boxwood-init", flags, boxwood_init::PROGRAM);
    let file = match sealed(MemfdFlags::EXEC) {
        // Kernels before 6.3 reject the flag and do not need it.
        Err(Errno::INVAL) => sealed(MemfdFlags::empty())?,
        other => other?,
    };
    // A descriptor open for writing cannot be executed; this one is read-only.
    File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

pub(crate) fn into_io(error: ChannelError) -> io::Error {
    match error {
        ChannelError::Io { source, .. } => source,
        ChannelError::Closed => io::ErrorKind::BrokenPipe.into(),
        ChannelError::WouldBlock => io::ErrorKind::WouldBlock.into(),
        error @ ChannelError::Invalid(_) => io::Error::other(error),
    }
}
