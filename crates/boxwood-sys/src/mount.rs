//! Mount attributes that `rustix` does not support.

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

/// Sets attributes of a mount, given by an `O_PATH` or detached-mount descriptor.
pub fn set_attributes(mount: BorrowedFd<'_>, set: u64, depth: Depth) -> io::Result<()> {
    let what = Change {
        set,
        ..Change::default()
    };
    change(mount, what, None, depth)
}

/// Clears attributes.
pub fn clear_attributes(mount: BorrowedFd<'_>, clear: u64, depth: Depth) -> io::Result<()> {
    let what = Change {
        clear,
        ..Change::default()
    };
    change(mount, what, None, depth)
}

/// Maps the owners of a detached mount with the maps of `user_namespace`, and makes the mount private. A
/// clone of a shared mount is its peer: what is mounted below one would appear below the other.
pub fn set_idmap(mount: BorrowedFd<'_>, user_namespace: BorrowedFd<'_>) -> io::Result<()> {
    let what = Change {
        set: libc::MOUNT_ATTR_IDMAP,
        propagation: libc::MS_PRIVATE,
        ..Change::default()
    };
    change(mount, what, Some(user_namespace), Depth::One)
}

#[derive(Clone, Copy, Default)]
struct Change {
    set: u64,
    clear: u64,
    propagation: u64,
}

fn change(
    mount: BorrowedFd<'_>,
    what: Change,
    user_namespace: Option<BorrowedFd<'_>>,
    depth: Depth,
) -> io::Result<()> {
    let userns_fd = match user_namespace {
        Some(fd) => u64::try_from(fd.as_raw_fd()).unwrap_or(u64::MAX),
        None => 0,
    };
    let attr = libc::mount_attr {
        attr_set: what.set,
        attr_clr: what.clear,
        propagation: what.propagation,
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
