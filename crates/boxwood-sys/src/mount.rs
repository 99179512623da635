//! Attributes of mounts that `rustix` has no call for.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

pub const RDONLY: u64 = libc::MOUNT_ATTR_RDONLY;
pub const NOSUID: u64 = libc::MOUNT_ATTR_NOSUID;
pub const NODEV: u64 = libc::MOUNT_ATTR_NODEV;
pub const NOEXEC: u64 = libc::MOUNT_ATTR_NOEXEC;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    One,
    Recursive,
}

/// Sets attributes on the mount that `mount` (an `O_PATH` or detached-mount descriptor) names.
pub fn set_attributes(mount: BorrowedFd<'_>, set: u64, depth: Depth) -> io::Result<()> {
    change(mount, set, 0, None, depth)
}

/// Translates owners on a detached mount by the maps of `user_namespace`, and makes it private: a
/// clone of a shared mount is its peer, and what is mounted below one appears below the other, in
/// both directions.
pub fn set_idmap(mount: BorrowedFd<'_>, user_namespace: BorrowedFd<'_>) -> io::Result<()> {
    change(
        mount,
        libc::MOUNT_ATTR_IDMAP,
        libc::MS_PRIVATE,
        Some(user_namespace),
        Depth::One,
    )
}

fn change(
    mount: BorrowedFd<'_>,
    set: u64,
    propagation: u64,
    user_namespace: Option<BorrowedFd<'_>>,
    depth: Depth,
) -> io::Result<()> {
    let userns_fd = match user_namespace {
        Some(fd) => u64::try_from(fd.as_raw_fd()).unwrap_or(u64::MAX),
        None => 0,
    };
    let attr = libc::mount_attr {
        attr_set: set,
        attr_clr: 0,
        propagation,
        userns_fd,
    };
    let recursive = match depth {
        Depth::One => 0,
        Depth::Recursive => libc::AT_RECURSIVE,
    };
    // SAFETY: the path is a NUL-terminated empty string, `attr` is a valid mount_attr of the size
    // given; the kernel writes to neither.
    let rc = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | recursive,
            &raw const attr,
            size_of::<libc::mount_attr>(),
        )
    };
    if rc == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
