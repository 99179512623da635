//! Credentials of the peer of a Unix socket.
//!
//! Pid 0 is a valid result: the peer is outside of this PID namespace. `rustix` cannot represent it.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Pid of the process that connected or called `listen`, in this PID namespace; 0 if it is not in it.
pub fn pid(socket: BorrowedFd<'_>) -> io::Result<i32> {
    credentials(socket).map(|credentials| credentials.pid)
}

/// Effective uid of that process at that time.
pub fn uid(socket: BorrowedFd<'_>) -> io::Result<u32> {
    credentials(socket).map(|credentials| credentials.uid)
}

fn credentials(socket: BorrowedFd<'_>) -> io::Result<libc::ucred> {
    let mut credentials = libc::ucred {
        pid: 0,
        uid: 0,
        gid: 0,
    };
    get(socket, libc::SO_PEERCRED, &mut credentials)?;
    Ok(credentials)
}

/// A pidfd of that process, which is safe from pid reuse. Needs Linux 6.5.
pub fn pidfd(socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    const SO_PEERPIDFD: i32 = 77;
    let mut fd: i32 = -1;
    get(socket, SO_PEERPIDFD, &mut fd)?;
    if fd < 0 {
        return Err(io::ErrorKind::NotFound.into());
    }
    // SAFETY: the kernel created the descriptor for this call; it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// `T` is plain data of the size the kernel writes for `option`.
fn get<T: Copy>(socket: BorrowedFd<'_>, option: i32, value: &mut T) -> io::Result<()> {
    let mut length = libc::socklen_t::try_from(size_of::<T>()).map_err(io::Error::other)?;
    // SAFETY: the pointer and length of one value that outlives the call.
    let rc = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            std::ptr::from_mut(value).cast(),
            &raw mut length,
        )
    };
    if rc != 0 {
        return Err(io::Error::last_os_error());
    }
    if length as usize != size_of::<T>() {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn peer_credentials_are_those_of_the_creator() {
        let (one, _other) = UnixStream::pair().expect("pair");
        let own_pid = i32::try_from(std::process::id()).expect("pid");
        assert_eq!(pid(one.as_fd()).expect("pid"), own_pid);
        let my_uid = rustix::process::geteuid().as_raw();
        assert_eq!(uid(one.as_fd()).expect("uid"), my_uid);
    }
}
