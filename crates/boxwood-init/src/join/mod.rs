//! Init of a box whose namespaces a container engine or nsjail created.
//!
//! Connects to the bootstrap socket and waits for the plan. The mount helper has populated the root file
//! system before the plan arrives, so nothing is mounted here.

mod relay;
mod relay_stream;
pub(crate) mod stream;

use std::os::fd::AsFd;

use boxwood_init::{Channel, Plan, RootPlan, SOCKET_NAME, ToInit};
use boxwood_sys::clone::exit_now;
use boxwood_sys::{peer, signals};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::thread::{UnshareFlags, set_thread_groups, unshare_unsafe};

use crate::serve;
use crate::serve::command::LAST_DESCRIPTOR;
use crate::serve::daemon_connection::DaemonListener;
use crate::setup::lockdown::{self, Locked};
use crate::setup::null_stdio;
use crate::step::{Step, StepError};

/// Variables that engines set and that do not come from the image.
const ENGINE_VARIABLES: [&str; 5] = ["HOME", "HOSTNAME", "TERM", "container", "PWD"];

/// Connects to the daemon, waits for the plan, applies it and serves.
pub(crate) fn run(bootstrap_dir: &str) -> ! {
    // First: unlike a native init this program was exec'ed and is therefore dumpable.
    if set_dumpable_behavior(DumpableBehavior::NotDumpable).is_err() {
        exit_now(1);
    }
    let Ok(channel) = connect_to_daemon(bootstrap_dir) else {
        exit_now(1)
    };
    let _ = rustix::thread::set_name(c"boxwood-init");
    let Ok((ToInit::Plan(mut plan), fds)) = channel.receive::<ToInit>() else {
        exit_now(0)
    };
    let prepared =
        DaemonListener::open(&plan, &fds).and_then(|listener| Ok((apply(&plan)?, listener)));
    drop(fds);
    if matches!(plan.root, RootPlan::Engine) {
        take_environment(&mut plan);
    }
    serve::start(channel, &plan, prepared)
}

/// Connects to the bootstrap socket and closes all descriptors that the engine left open.
fn connect_to_daemon(bootstrap_dir: &str) -> rustix::io::Result<Channel> {
    signals::reset_all().map_err(|_| Errno::IO)?;
    // SAFETY: integers only; this process owns no descriptor above 2.
    if unsafe { libc::syscall(libc::SYS_close_range, 3, LAST_DESCRIPTOR, 0) } != 0 {
        return Err(Errno::IO);
    }
    let kind = SocketType::SEQPACKET;
    let socket = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
    let address = SocketAddrUnix::new(format!("{bootstrap_dir}/{SOCKET_NAME}"))?;
    connect(&socket, &address)?;
    null_stdio()?;
    // The daemon is outside of the box, so it has no pid in this PID namespace.
    match peer::pid(socket.as_fd()) {
        Ok(0) => Ok(Channel::from(socket)),
        _ => Err(Errno::PERM),
    }
}

pub(crate) fn apply(plan: &Plan) -> Result<Locked, StepError> {
    match rustix::process::setsid() {
        // With some engines the first process is already a session leader.
        Ok(_) | Err(Errno::PERM) => {}
        Err(errno) => return Err(errno).step("create a new session"),
    }
    if !plan.identity.single_uid {
        set_thread_groups(&[]).step("drop the image's groups")?;
    }
    if plan.cgroup_namespace && matches!(plan.root, RootPlan::Jail) {
        // Not done by nsjail: it runs before the box has its own cgroup.
        // SAFETY: one thread, and no descriptor table is unshared.
        unsafe { unshare_unsafe(UnshareFlags::NEWCGROUP) }.step("enter a cgroup namespace")?;
    }
    lockdown::lock(plan)
}

/// The Docker client always passes the operator's proxy variables, including passwords.
fn is_proxy(name: &str) -> bool {
    let kind = name.to_ascii_lowercase();
    matches!(
        kind.strip_suffix("_proxy"),
        Some("http" | "https" | "ftp" | "no" | "all")
    )
}

/// Merges the image's environment below the plan's. `PATH` is the image's with `~/.local/bin` in front.
/// Variables that name a file in `/etc` which the image does not have are left out.
pub(crate) fn take_environment(plan: &mut Plan) {
    let mut environment: Vec<(String, String)> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(name, _)| !ENGINE_VARIABLES.contains(&name.as_str()) && !is_proxy(name))
        .collect();
    let path = environment
        .iter()
        .find(|(name, value)| name == "PATH" && !value.is_empty())
        .map(|(_, value)| format!("{}/.local/bin:{value}", plan.identity.home()));
    for (name, value) in std::mem::take(&mut plan.environment) {
        let absent = value.starts_with("/etc/") && !std::path::Path::new(&value).exists();
        if !absent {
            environment.retain(|(existing, _)| *existing != name);
            environment.push((name, value));
        }
    }
    if let Some(path) = path {
        environment.retain(|(name, _)| name != "PATH");
        environment.push(("PATH".to_owned(), path));
    }
    plan.environment = environment;
}
