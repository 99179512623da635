//! From empty namespaces to a running box.
//!
//! Comes in: a plan. Goes out: a box whose init serves commands, or the step that failed. Never
//! here: a failed safety call that is passed over.

use std::os::fd::{AsFd, OwnedFd};

use boxwood_init::{Channel, FromInit, Identity, InsideNetwork, Plan, ToInit};
use boxwood_sys::clone::exit_now;
use boxwood_sys::netlink::{self, Subnet};
use boxwood_sys::nftables::{InsideRules, guard_inside};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::thread::{
    Gid, Uid, UnshareFlags, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
    unshare_unsafe,
};

use crate::door::{Daemon, Door};
use crate::lockdown::{self, Locked};
use crate::root;
use crate::serve;
use crate::step::{Step, StepError};

/// Waits for the plan, carries it out and serves.
pub(crate) fn be_born(channel: Channel) -> ! {
    let _ = rustix::thread::set_name(c"boxwood-init");
    let Ok((ToInit::Plan(plan), fds)) = channel.receive::<ToInit>() else {
        exit_now(0)
    };
    match carry_out(&plan, fds) {
        Ok((locked, door)) => {
            let ready = FromInit::Ready {
                landlock: locked.landlock,
                notify: locked.listener.is_some(),
            };
            if channel.send(&ready, &[]).is_err() {
                // Nobody was told of the box yet.
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

fn carry_out(plan: &Plan, fds: Vec<OwnedFd>) -> Result<(Locked, Option<Door>), StepError> {
    default_child_signals();
    rustix::process::setsid().step("leave the daemon's session")?;
    become_root(&plan.identity)?;
    // After the uid changes: those reset it.
    set_dumpable_behavior(DumpableBehavior::NotDumpable).step("close init to ptrace")?;
    if plan.cgroup_namespace {
        // SAFETY: one thread, and no descriptor table is unshared.
        unsafe { unshare_unsafe(UnshareFlags::NEWCGROUP) }.step("enter a cgroup namespace")?;
    }
    root::build(plan, &fds)?;
    let door = Door::open(plan, &fds)?;
    drop(fds);
    rustix::system::sethostname(plan.hostname.as_bytes()).step("set the host name")?;
    loopback()?;
    network(plan.network.as_ref())?;
    Ok((lockdown::lock(plan)?, door))
}

/// Takes the namespace's uid 0, which owns the mounts to come. With a single uid there is nobody
/// else to be, and the capabilities are there already.
pub(crate) fn become_root(identity: &Identity) -> Result<(), StepError> {
    if identity.single_uid {
        return Ok(());
    }
    let (uid, gid) = (Uid::ROOT, Gid::ROOT);
    set_thread_groups(&[]).step("drop the daemon's groups")?;
    set_thread_res_gid(gid, gid, gid).step("become gid 0 of the box")?;
    set_thread_res_uid(uid, uid, uid).step("become uid 0 of the box")
}

fn loopback() -> Result<(), StepError> {
    netlink::loopback_up().step("bring up the loopback interface")
}

/// Configures the box's side of its way out, in the network namespace this process is in. The packet
/// filter comes first: nothing leaves by an interface that no rule has looked at.
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

/// The spawner ignores its children; init must hear of them.
fn default_child_signals() {
    // SAFETY: SIG_DFL is a valid disposition.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

/// The descriptor a plan names by place.
pub(crate) fn fd_at(
    fds: &[OwnedFd],
    place: usize,
) -> Result<rustix::fd::BorrowedFd<'_>, StepError> {
    fds.get(place).map(AsFd::as_fd).ok_or_else(|| StepError {
        step: format!("find descriptor {place} of the plan"),
        errno: libc::EBADF,
    })
}
