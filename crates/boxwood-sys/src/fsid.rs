//! File system uid and gid of the calling thread.

use std::io;

/// Sets both. The calls do not report errors, so the result is checked with a second call.
pub fn set(uid: u32, gid: u32) -> io::Result<()> {
    let invalid = u32::MAX;
    // SAFETY: integers only. An invalid id changes nothing and returns the current one.
    let (seen_gid, seen_uid) = unsafe {
        libc::syscall(libc::SYS_setfsgid, gid);
        libc::syscall(libc::SYS_setfsuid, uid);
        (
            libc::syscall(libc::SYS_setfsgid, invalid),
            libc::syscall(libc::SYS_setfsuid, invalid),
        )
    };
    if seen_uid == i64::from(uid) && seen_gid == i64::from(gid) {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(libc::EPERM))
    }
}
