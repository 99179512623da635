//! The spawner: forks blank boxes on request.
//!
//! Comes in: requests from the daemon on standard input. Goes out: pids with pidfds. Never here: a
//! thread, a mount, a decision, a wait for anybody but the daemon. It lives in the host's namespaces
//! and does nothing there.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use boxwood_init::{Channel, ChannelError, FromSpawner, ToSpawner};
use boxwood_sys::clone::{self, Forked, exit_now, flags};
use boxwood_sys::signals;
use rustix::fs::{Mode, OFlags};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
use rustix::thread::{
    CapabilitiesSecureBits, Uid, set_capabilities_secure_bits, set_thread_res_uid,
};

use crate::{birth, mounter};

const BOX_NAMESPACES: u64 =
    flags::NEWUSER | flags::NEWNS | flags::NEWPID | flags::NEWNET | flags::NEWIPC | flags::NEWUTS;

pub(crate) fn run() -> ! {
    let Ok(channel) = take_channel() else {
        exit_now(1)
    };
    if signals::reset_all().is_err() {
        exit_now(1);
    }
    be_killable();
    // Children are told apart by pidfds in the daemon; nobody here waits for them.
    ignore_child_signals();
    let _ = rustix::thread::set_name(c"boxwood-spawn");
    loop {
        let (request, mut fds) = match channel.receive::<ToSpawner>() {
            Ok(received) => received,
            // The daemon is gone: boxes notice on their own channels.
            Err(ChannelError::Closed) => exit_now(0),
            Err(_) => exit_now(1),
        };
        let Some(inner) = fds.pop() else { exit_now(1) };
        let flags = match request {
            ToSpawner::Blank { .. } => BOX_NAMESPACES,
            ToSpawner::UserNamespace { .. } => flags::NEWUSER,
            ToSpawner::Mounter => 0,
        };
        match fork_as(request, flags) {
            Ok(Forked::Child) => {
                drop(channel);
                match request {
                    ToSpawner::Blank { .. } => birth::be_born(Channel::from(inner)),
                    ToSpawner::UserNamespace { .. } => wait_for_end(inner),
                    ToSpawner::Mounter => mounter::run(&Channel::from(inner)),
                }
            }
            Ok(Forked::Parent { pid, pidfd }) => {
                drop(inner);
                if channel
                    .send(&FromSpawner::Born { pid }, &[pidfd.as_fd()])
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

/// Forks as the owner that was asked for, and is itself again afterwards.
fn fork_as(request: ToSpawner, flags: u64) -> io::Result<Forked> {
    let owner = match request {
        ToSpawner::Blank { owner } | ToSpawner::UserNamespace { owner } => owner,
        ToSpawner::Mounter => None,
    };
    let Some(owner) = owner else {
        // SAFETY: this process has one thread.
        return unsafe { clone::fork(flags) };
    };
    // Hosts that forbid user namespaces to ordinary users go by capabilities; those stay.
    set_capabilities_secure_bits(CapabilitiesSecureBits::NO_SETUID_FIXUP)?;
    let (root, owner) = (Uid::ROOT, Uid::from_raw(owner));
    set_thread_res_uid(root, owner, root)?;
    // SAFETY: as above.
    let forked = unsafe { clone::fork(flags) };
    // In the child uid 0 does not exist before its maps do, and what it is then its plan says.
    if !matches!(forked, Ok(Forked::Child)) {
        set_thread_res_uid(root, root, root)?;
    }
    forked
}

/// Moves the channel away from standard input and leaves `/dev/null` on all three.
fn take_channel() -> rustix::io::Result<Channel> {
    let channel = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 10)?;
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    dup2_stdin(&null)?;
    dup2_stdout(&null)?;
    dup2_stderr(&null)?;
    drop(null);
    close_all_but(&channel)?;
    rustix::process::setsid()?;
    Ok(Channel::from(channel))
}

/// Whatever the daemon, or its parents, left open without close-on-exec.
fn close_all_but(channel: &OwnedFd) -> rustix::io::Result<()> {
    let kept = u32::try_from(channel.as_raw_fd()).unwrap_or(u32::MAX);
    for (first, last) in [(3, kept - 1), (kept + 1, u32::MAX)] {
        // SAFETY: integers only; nothing else in this process owns a descriptor yet.
        if unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) } != 0 {
            return Err(rustix::io::Errno::IO);
        }
    }
    Ok(())
}

/// A daemon that the kernel was told to spare when memory runs out must not make its boxes as hard
/// to kill: each of them inherits this from here, and cannot lower it again.
pub(crate) fn be_killable() {
    const PATH: &str = "/proc/self/oom_score_adj";
    let spared = std::fs::read_to_string(PATH)
        .is_ok_and(|value| value.trim().parse::<i32>().is_ok_and(|value| value < 0));
    if spared && std::fs::write(PATH, "0").is_err() {
        exit_now(1);
    }
}

fn ignore_child_signals() {
    // SAFETY: SIG_IGN is a valid disposition; no handler of ours is involved.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
}

/// Keeps a user namespace alive until the daemon closes its end, or kills us.
fn wait_for_end(inner: OwnedFd) -> ! {
    let channel = Channel::from(inner);
    let _ = channel.receive::<ToSpawner>();
    exit_now(0)
}
