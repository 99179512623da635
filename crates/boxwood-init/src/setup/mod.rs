//! Sets up a native box in empty namespaces: applies the plan, locks init down and serves commands.
//!
//! The first failed step ends the setup and is reported to the daemon.

pub(crate) mod lockdown;
pub(crate) mod seccomp_rules;

use std::os::fd::{AsFd, OwnedFd};

use boxwood_init::{Channel, Identity, InsideNetwork, Plan, ToInit};
use boxwood_sys::clone::exit_now;
use boxwood_sys::netlink::{self, Subnet};
use boxwood_sys::nftables::{InsideRules, guard_inside};
use boxwood_sys::signals;
use rustix::fs::{Mode, OFlags};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
use rustix::thread::{
    Gid, Uid, UnshareFlags, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
    unshare_unsafe,
};

use self::lockdown::Locked;
use crate::rootfs;
use crate::serve;
use crate::serve::daemon_connection::DaemonListener;
use crate::step::{Step, StepError};

/// Waits for the plan, applies it and serves.
pub(crate) fn run(channel: Channel) -> ! {
    let _ = rustix::thread::set_name(c"boxwood-init");
    let Ok((ToInit::Plan(plan), fds)) = channel.receive::<ToInit>() else {
        exit_now(0)
    };
    let prepared = apply(&plan, fds);
    serve::start(channel, &plan, prepared)
}

fn apply(plan: &Plan, fds: Vec<OwnedFd>) -> Result<(Locked, Option<DaemonListener>), StepError> {
    // The spawner ignores it; init needs it.
    signals::reset(libc::SIGCHLD).step("reset SIGCHLD")?;
    rustix::process::setsid().step("create a new session")?;
    become_root(&plan.identity)?;
    // After the uid changes, which reset it.
    set_dumpable_behavior(DumpableBehavior::NotDumpable).step("make init undumpable")?;
    if plan.cgroup_namespace {
        // SAFETY: one thread, and no descriptor table is unshared.
        unsafe { unshare_unsafe(UnshareFlags::NEWCGROUP) }.step("enter a cgroup namespace")?;
    }
    rootfs::build(plan, &fds)?;
    let listener = DaemonListener::open(plan, &fds)?;
    drop(fds);
    rustix::system::sethostname(plan.hostname.as_bytes()).step("set the host name")?;
    netlink::loopback_up().step("bring up the loopback interface")?;
    network(plan.network.as_ref())?;
    Ok((lockdown::lock(plan)?, listener))
}

/// Becomes uid 0 of the user namespace, which will own the mounts. With a single mapped uid the process
/// already has that uid and its capabilities.
pub(crate) fn become_root(identity: &Identity) -> Result<(), StepError> {
    if identity.single_uid {
        return Ok(());
    }
    let (uid, gid) = (Uid::ROOT, Gid::ROOT);
    set_thread_groups(&[]).step("drop the daemon's groups")?;
    set_thread_res_gid(gid, gid, gid).step("become gid 0 of the box")?;
    set_thread_res_uid(uid, uid, uid).step("become uid 0 of the box")
}

/// Configures the box's network in the current network namespace. The packet filter comes first, so that no
/// packet leaves unfiltered.
pub(crate) fn network(network: Option<&InsideNetwork>) -> Result<(), StepError> {
    let Some(network) = network else {
        return Ok(());
    };
    let rules = InsideRules {
        resolvers: network.dns.clone(),
        denied: network
            .denied
            .iter()
            .map(|&(address, prefix)| Subnet::new(address, prefix))
            .collect(),
    };
    guard_inside(&rules).step("install the packet filter inside the box")?;
    if let Some(interface) = &network.interface {
        netlink::configure_interface(
            &interface.name,
            interface.address,
            interface.prefix,
            interface.gateway,
            interface.mtu,
        )
        .step("configure the box's network interface")?;
    }
    Ok(())
}

/// Opens `/dev/null` as stdin, stdout and stderr.
pub(crate) fn null_stdio() -> rustix::io::Result<()> {
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    dup2_stdin(&null)?;
    dup2_stdout(&null)?;
    dup2_stderr(&null)
}

/// The descriptor with this index.
pub(crate) fn fd_at(
    fds: &[OwnedFd],
    index: usize,
) -> Result<rustix::fd::BorrowedFd<'_>, StepError> {
    fds.get(index).map(AsFd::as_fd).ok_or_else(|| StepError {
        step: format!("find descriptor {index} of the message"),
        errno: libc::EBADF,
    })
}
