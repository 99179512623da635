//! Registers descriptors with the Tokio runtime.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use tokio::io::unix::AsyncFd;

/// Registers `fd`. The deprecated constructor accepts any type with a raw descriptor; the `AsFd` bound
/// guarantees that it stays valid. (The replacement constructor is `unsafe` for this reason.)
#[expect(
    deprecated,
    reason = "the bound of this function is what the constructor lacks"
)]
pub fn async_fd<T: AsFd + AsRawFd>(fd: T) -> io::Result<AsyncFd<T>> {
    AsyncFd::new(fd)
}
