//! Creates objects owned by the commands' user.

use std::io;

use boxwood_init::Identity;
use boxwood_sys::fsid;
use rustix::thread::{Gid, Uid, set_thread_res_gid, set_thread_res_uid};

/// Runs `work` with the commands' uid and gid, which become the owner of the terminals and pipes it opens.
pub(crate) fn as_command<T>(identity: &Identity, work: impl FnOnce() -> T) -> io::Result<T> {
    if identity.single_uid {
        return Ok(work());
    }
    let (uid, gid) = (identity.command_uid, identity.command_gid);
    if fsid::set(uid, gid).is_ok() {
        let result = work();
        fsid::set(identity.init_uid, identity.init_uid)?;
        return Ok(result);
    }
    // gVisor has no separate file system ids. The real and saved uid stay init's, so that commands still
    // cannot signal it.
    effective(uid, gid)?;
    let result = work();
    effective(identity.init_uid, identity.init_uid)?;
    Ok(result)
}

fn effective(uid: u32, gid: u32) -> io::Result<()> {
    if uid == 0 {
        set_thread_res_uid(None, Uid::from_raw(uid), None)?;
        set_thread_res_gid(None, Gid::from_raw(gid), None)?;
    } else {
        set_thread_res_gid(None, Gid::from_raw(gid), None)?;
        set_thread_res_uid(None, Uid::from_raw(uid), None)?;
    }
    Ok(())
}
