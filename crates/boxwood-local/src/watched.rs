//! Descriptors that the runtime watches.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use tokio::io::unix::AsyncFd;

/// Registers `fd`. The deprecated constructor takes anything with a raw descriptor, which may lie;
/// `AsFd` is the promise that this one does not, for as long as it lives. (Its successor asks for
/// that promise as `unsafe`.)
#[expect(
    deprecated,
    reason = "the bound of this function is what the constructor lacks"
)]
pub fn watch<T: AsFd + AsRawFd>(fd: T) -> io::Result<AsyncFd<T>> {
    AsyncFd::new(fd)
}
