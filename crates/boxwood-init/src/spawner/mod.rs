//! The spawner: forks inits and mount helpers on request of the daemon and returns pids with pidfds.
//!
//! It runs in the host's namespaces with one thread, mounts nothing and waits only for the daemon.

pub(crate) mod enter_user_namespace;
mod mount_helper;

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use boxwood_init::{Channel, ChannelError, FromSpawner, ToSpawner};
use boxwood_sys::clone::{self, Forked, exit_now, flags};
use boxwood_sys::signals;
use rustix::thread::{
    CapabilitiesSecureBits, Uid, set_capabilities_secure_bits, set_thread_res_uid,
};

use crate::setup;

const BOX_NAMESPACES: u64 =
    flags::NEWUSER | flags::NEWNS | flags::NEWPID | flags::NEWNET | flags::NEWIPC | flags::NEWUTS;

pub(crate) fn run() -> ! {
    let Ok(channel) = take_channel() else {
        exit_now(1)
    };
    if signals::reset_all().is_err() {
        exit_now(1);
    }
    reset_oom_score();
    // The daemon waits for the children by pidfd.
    if signals::ignore(libc::SIGCHLD).is_err() {
        exit_now(1);
    }
    let _ = rustix::thread::set_name(c"boxwood-spawn");
    loop {
        let (request, mut fds) = match channel.receive::<ToSpawner>() {
            Ok(received) => received,
            // The daemon has exited. Boxes see that on their own channels.
            Err(ChannelError::Closed) => exit_now(0),
            Err(_) => exit_now(1),
        };
        let Some(inner) = fds.pop() else { exit_now(1) };
        let flags = match request {
            ToSpawner::Init { .. } => BOX_NAMESPACES,
            ToSpawner::UserNamespace { .. } => flags::NEWUSER,
            ToSpawner::MountHelper => 0,
        };
        match fork_as(request, flags) {
            Ok(Forked::Child) => {
                drop(channel);
                match request {
                    ToSpawner::Init { .. } => setup::run(Channel::from(inner)),
                    ToSpawner::UserNamespace { .. } => wait_for_end(inner),
                    ToSpawner::MountHelper => mount_helper::run(&Channel::from(inner)),
                }
            }
            Ok(Forked::Parent { pid, pidfd }) => {
                drop(inner);
                if channel
                    .send(&FromSpawner::Started { pid }, &[pidfd.as_fd()])
                    .is_err()
                {
                    exit_now(1);
                }
            }
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or(libc::EIO);
                if channel.send(&FromSpawner::Failed { errno }, &[]).is_err() {
                    exit_now(1);
                }
            }
        }
    }
}

/// Forks with the requested owner as effective uid and restores the uid in the parent.
fn fork_as(request: ToSpawner, flags: u64) -> io::Result<Forked> {
    let owner = match request {
        ToSpawner::Init { owner } | ToSpawner::UserNamespace { owner } => owner,
        ToSpawner::MountHelper => None,
    };
    let Some(owner) = owner else {
        // SAFETY: this process has one thread.
        return unsafe { clone::fork(flags) };
    };
    // Hosts that deny user namespaces to ordinary users check capabilities, so those are kept.
    set_capabilities_secure_bits(CapabilitiesSecureBits::NO_SETUID_FIXUP)?;
    let (root, owner) = (Uid::ROOT, Uid::from_raw(owner));
    set_thread_res_uid(root, owner, root)?;
    // SAFETY: as above.
    let forked = unsafe { clone::fork(flags) };
    // In the child uid 0 is not mapped yet; setup changes its uid later.
    if !matches!(forked, Ok(Forked::Child)) {
        set_thread_res_uid(root, root, root)?;
    }
    forked
}

/// Moves the channel away from standard input and opens `/dev/null` as stdin, stdout and stderr.
fn take_channel() -> rustix::io::Result<Channel> {
    let channel = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 10)?;
    setup::null_stdio()?;
    close_all_but(&channel)?;
    rustix::process::setsid()?;
    Ok(Channel::from(channel))
}

/// Closes descriptors that the daemon or its parents left open without close-on-exec.
fn close_all_but(channel: &OwnedFd) -> rustix::io::Result<()> {
    let fd = u32::try_from(channel.as_raw_fd()).unwrap_or(u32::MAX);
    for (first, last) in [(3, fd - 1), (fd + 1, u32::MAX)] {
        // SAFETY: integers only; nothing else in this process owns a descriptor yet.
        if unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) } != 0 {
            return Err(rustix::io::Errno::IO);
        }
    }
    Ok(())
}

/// Resets a negative `oom_score_adj` of the daemon, which boxes would inherit.
pub(crate) fn reset_oom_score() {
    const PATH: &str = "/proc/self/oom_score_adj";
    let is_negative = std::fs::read_to_string(PATH)
        .is_ok_and(|value| value.trim().parse::<i32>().is_ok_and(|value| value < 0));
    if is_negative && std::fs::write(PATH, "0").is_err() {
        exit_now(1);
    }
}

/// Keeps a user namespace alive until the daemon closes its end or kills this process.
fn wait_for_end(inner: OwnedFd) -> ! {
    let channel = Channel::from(inner);
    let _ = channel.receive::<ToSpawner>();
    exit_now(0)
}
