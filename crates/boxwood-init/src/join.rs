//! Init of a box whose namespaces somebody else made.
//!
//! Comes in: the directory with the daemon's socket, mounted or open. Goes out: the same init as
//! everywhere. Never here: a mount; the daemon's mounter has furnished the box when the plan comes.

use std::os::fd::AsFd;

use boxwood_init::{Channel, FromInit, Plan, RootPlan, SOCKET_NAME, ToInit};
use boxwood_sys::clone::exit_now;
use boxwood_sys::{peer, signals};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
use rustix::thread::{UnshareFlags, set_thread_groups, unshare_unsafe};

use crate::command::LAST_DESCRIPTOR;
use crate::door::{Daemon, Door};
use crate::lockdown::{self, Locked};
use crate::serve;
use crate::step::{Step, StepError};

/// What engines set for the program they start, and that is not the image's.
const ENGINES_OWN: [&str; 5] = ["HOME", "HOSTNAME", "TERM", "container", "PWD"];

/// Calls the daemon, waits for the plan, serves.
pub(crate) fn run(meeting_place: &str) -> ! {
    // First of all: this program was exec'ed, and its memory is as open as any other's.
    if set_dumpable_behavior(DumpableBehavior::NotDumpable).is_err() {
        exit_now(1);
    }
    let Ok(channel) = call(meeting_place) else {
        exit_now(1)
    };
    let _ = rustix::thread::set_name(c"boxwood-init");
    let Ok((ToInit::Plan(mut plan), fds)) = channel.receive::<ToInit>() else {
        exit_now(0)
    };
    let prepared = Door::open(&plan, &fds).and_then(|door| Ok((carry_out(&plan)?, door)));
    drop(fds);
    match prepared {
        Ok((locked, door)) => {
            if matches!(plan.root, RootPlan::Engine) {
                take_environment(&mut plan);
            }
            let ready = FromInit::Ready {
                landlock: locked.landlock,
                notify: locked.listener.is_some(),
            };
            if channel.send(&ready, &[]).is_err() {
                exit_now(0);
            }
            serve::run(Daemon::new(channel, door), &plan, &locked)
        }
        Err(StepError { step, errno }) => {
            let _ = channel.send(&FromInit::PlanFailed { step, errno }, &[]);
            exit_now(1)
        }
    }
}

/// Connects, and lets go of everything that the engine left open.
fn call(meeting_place: &str) -> rustix::io::Result<Channel> {
    signals::reset_all().map_err(|_| Errno::IO)?;
    // SAFETY: integers only; nothing in this process owns a descriptor above the three.
    if unsafe { libc::syscall(libc::SYS_close_range, 3, LAST_DESCRIPTOR, 0) } != 0 {
        return Err(Errno::IO);
    }
    let kind = SocketType::SEQPACKET;
    let socket = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
    let address = SocketAddrUnix::new(format!("{meeting_place}/{SOCKET_NAME}"))?;
    connect(&socket, &address)?;
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    dup2_stdin(&null)?;
    dup2_stdout(&null)?;
    dup2_stderr(&null)?;
    // Whoever listens is not one of us: the box has no other process yet, and the daemon has no
    // number here.
    match peer::pid(socket.as_fd()) {
        Ok(0) => Ok(Channel::from(socket)),
        _ => Err(Errno::PERM),
    }
}

pub(crate) fn carry_out(plan: &Plan) -> Result<Locked, StepError> {
    match rustix::process::setsid() {
        // The first process of some engines leads its session already.
        Ok(_) | Err(Errno::PERM) => {}
        Err(errno) => return Err(errno).step("leave the engine's session"),
    }
    if !plan.identity.single_uid {
        set_thread_groups(&[]).step("drop the image's groups")?;
    }
    if plan.cgroup_namespace && matches!(plan.root, RootPlan::Jail) {
        // Here and not by the jail, which came before the box had a cgroup of its own.
        // SAFETY: one thread, and no descriptor table is unshared.
        unsafe { unshare_unsafe(UnshareFlags::NEWCGROUP) }.step("enter a cgroup namespace")?;
    }
    lockdown::lock(plan)
}

/// Docker's client hands the operator's proxies on, with their passwords, and cannot be told not to.
fn is_proxy(name: &str) -> bool {
    let kind = name.to_ascii_lowercase();
    matches!(
        kind.strip_suffix("_proxy"),
        Some("http" | "https" | "ftp" | "no" | "all")
    )
}

/// An image's own variables come before what the request adds. Its search path stays its own, with
/// the user's programs in front as everywhere; a certificate file that it does not have is not named.
pub(crate) fn take_environment(plan: &mut Plan) {
    let mut environment: Vec<(String, String)> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(name, _)| !ENGINES_OWN.contains(&name.as_str()) && !is_proxy(name))
        .collect();
    let path = environment
        .iter()
        .find(|(name, value)| name == "PATH" && !value.is_empty())
        .map(|(_, value)| format!("{}/.local/bin:{value}", plan.identity.home()));
    for (name, value) in std::mem::take(&mut plan.environment) {
        let absent = value.starts_with("/etc/") && !std::path::Path::new(&value).exists();
        if !absent {
            environment.retain(|(known, _)| *known != name);
            environment.push((name, value));
        }
    }
    if let Some(path) = path {
        environment.retain(|(name, _)| name != "PATH");
        environment.push(("PATH".to_owned(), path));
    }
    plan.environment = environment;
}
