//! Executes a program as root of a user namespace, without privileges on the host.
//!
//! Namespaces and mounts that the program creates belong to that user namespace.

use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

use boxwood_sys::clone::exit_now;
use rustix::fs::{Mode, OFlags};
use rustix::thread::{
    Gid, LinkNameSpaceType, Uid, move_into_link_name_space, set_thread_groups, set_thread_res_gid,
    set_thread_res_uid,
};

use super::reset_oom_score;
use crate::step::{Step, StepError};

/// Becomes the program. On failure prints a line on standard error and exits.
pub(crate) fn run(mut arguments: impl Iterator<Item = OsString>) -> ! {
    let (Some(namespace), Some(program)) = (arguments.next(), arguments.next()) else {
        eprintln!("the user namespace and the program are required");
        exit_now(1)
    };
    reset_oom_score();
    if let Err(StepError { step, errno }) = enter(&namespace) {
        let error = std::io::Error::from_raw_os_error(errno);
        eprintln!("failed to {step}: {error}");
        exit_now(1);
    }
    let error = Command::new(&program).args(arguments).exec();
    eprintln!("failed to execute {}: {error}", program.display());
    exit_now(1)
}

fn enter(namespace: &OsStr) -> Result<(), StepError> {
    let namespace = rustix::fs::open(namespace, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .step("open the user namespace")?;
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::User))
        .step("enter the user namespace")?;
    set_thread_groups(&[]).step("drop the daemon's groups")?;
    let (uid, gid) = (Uid::ROOT, Gid::ROOT);
    set_thread_res_gid(gid, gid, gid).step("become gid 0 of the namespace")?;
    set_thread_res_uid(uid, uid, uid).step("become uid 0 of the namespace")
}
