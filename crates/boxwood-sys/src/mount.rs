//! Mount attributes that `rustix` does not support, and file system types.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

pub const RDONLY: u64 = libc::MOUNT_ATTR_RDONLY;
pub const NOSUID: u64 = libc::MOUNT_ATTR_NOSUID;
pub const NODEV: u64 = libc::MOUNT_ATTR_NODEV;
pub const NOEXEC: u64 = libc::MOUNT_ATTR_NOEXEC;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    One,
    Recursive,
}

/// Types of file systems, as [`file_system`] returns them.
pub const PROC: i64 = 0x9fa0;
pub const TMPFS: i64 = 0x0102_1994;

/// The type of the file system that contains a file.
pub fn file_system(file: impl AsFd) -> rustix::io::Result<i64> {
    #[allow(
        clippy::unnecessary_cast,
        reason = "the field's width varies by machine"
    )]
    rustix::fs::fstatfs(file).map(|system| system.f_type as i64)
}

const NO_CHANGE: libc::mount_attr = libc::mount_attr {
    attr_set: 0,
    attr_clr: 0,
    propagation: 0,
    userns_fd: 0,
};

/// Sets attributes of a mount, given by an `O_PATH` or detached-mount descriptor.
pub fn set_attributes(mount: BorrowedFd<'_>, set: u64, depth: Depth) -> io::Result<()> {
    let change = libc::mount_attr {
        attr_set: set,
        ..NO_CHANGE
    };
    apply(mount, &change, depth)
}

/// Clears attributes.
pub fn clear_attributes(mount: BorrowedFd<'_>, clear: u64, depth: Depth) -> io::Result<()> {
    let change = libc::mount_attr {
        attr_clr: clear,
        ..NO_CHANGE
    };
    apply(mount, &change, depth)
}

/// Maps the owners of a detached mount with the maps of `user_namespace`, and makes the mount private. A
/// clone of a shared mount is its peer: what is mounted below one would appear below the other.
pub fn set_idmap(mount: BorrowedFd<'_>, user_namespace: BorrowedFd<'_>) -> io::Result<()> {
    let change = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_IDMAP,
        propagation: libc::MS_PRIVATE,
        userns_fd: u64::try_from(user_namespace.as_raw_fd()).unwrap_or(u64::MAX),
        ..NO_CHANGE
    };
    apply(mount, &change, Depth::One)
}

fn apply(mount: BorrowedFd<'_>, change: &libc::mount_attr, depth: Depth) -> io::Result<()> {
    let recursive = match depth {
        Depth::One => 0,
        Depth::Recursive => libc::AT_RECURSIVE,
    };
    // SAFETY: the path is a NUL-terminated empty string, `change` is a valid mount_attr of the size
    // given; the kernel writes to neither.
    let rc = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | recursive,
            std::ptr::from_ref(change),
            size_of::<libc::mount_attr>(),
        )
    };
    if rc == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
