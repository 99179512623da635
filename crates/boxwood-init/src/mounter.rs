//! Mounts in a box from outside, and ends: one more mount in one that is running, or all that a new
//! one needs whose namespaces somebody else made.
//!
//! Comes in: an order with the box's namespaces and the mounts' sources. Goes out: one answer. Never
//! here: the box's process namespace. Nobody in the box can see this process, so nobody there can
//! stop it, trace it or take its descriptors; and where the box has a user namespace of its own, this
//! process has no right outside of it once it is in the box.

use std::os::fd::{BorrowedFd, OwnedFd};

use boxwood_init::{
    Channel, FromMounter, MountOrder, MountPlan, MountSource, MountWork, Plan, RootPlan,
};
use boxwood_sys::clone::exit_now;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

use crate::birth::{become_root, fd_at, network};
use crate::root;
use crate::step::{Step, StepError};

/// Waits for the order, carries it out, answers.
pub(crate) fn run(channel: &Channel) -> ! {
    let _ = rustix::thread::set_name(c"boxwood-mount");
    let Ok((order, fds)) = channel.receive::<MountOrder>() else {
        exit_now(0)
    };
    let answer = match carry_out(&order, &fds) {
        Ok(()) => FromMounter::Done,
        Err(StepError { step, errno }) => FromMounter::Failed { step, errno },
    };
    // Whoever ordered may be gone; the mount is there all the same.
    let _ = channel.send(&answer, &[]);
    exit_now(0)
}

fn carry_out(order: &MountOrder, fds: &[OwnedFd]) -> Result<(), StepError> {
    match &order.work {
        MountWork::Join(mount) => join(order, mount, fds),
        MountWork::Furnish(plan) => furnish(order, plan, fds),
    }
}

fn join(order: &MountOrder, mount: &MountPlan, fds: &[OwnedFd]) -> Result<(), StepError> {
    enter_user_namespace(order, fds)?;
    let tree = match mount.source {
        // Attributes may be set by whoever may mount where he stands, which is in the box.
        MountSource::Detached { .. } => {
            enter_mounts(order, fds)?;
            root::bind(mount, fds)?
        }
        MountSource::SamePath { .. } => {
            copy_host_mounts()?;
            let tree = root::bind(mount, fds)?;
            enter_mounts(order, fds)?;
            tree
        }
    };
    root::put_over(&order.identity, &tree, &mount.target, mount.is_dir)
}

fn furnish(order: &MountOrder, plan: &Plan, fds: &[OwnedFd]) -> Result<(), StepError> {
    // The host's own directories are taken while we may, which is as the host's root.
    let system = match plan.root {
        RootPlan::Jail => Some(root::System::from_host()?),
        _ => None,
    };
    let net = fd_at(fds, order.net_namespace)?;
    enter_user_namespace(order, fds)?;
    enter(net, LinkNameSpaceType::Network).step("enter the box's network namespace")?;
    let mut by_path = plan.workspace.iter().chain(&plan.mounts);
    let by_path = by_path.any(|mount| matches!(mount.source, MountSource::SamePath { .. }));
    let given = if by_path {
        copy_host_mounts()?;
        let given = root::Given::take(plan, fds)?;
        enter_mounts(order, fds)?;
        given
    } else {
        enter_mounts(order, fds)?;
        root::Given::take(plan, fds)?
    };
    match &system {
        Some(system) => root::furnish_jail(plan, system, &given)?,
        None => root::furnish_container(plan, &given)?,
    }
    network(plan.network.as_ref())
}

fn enter_user_namespace(order: &MountOrder, fds: &[OwnedFd]) -> Result<(), StepError> {
    if let Some(namespace) = order.user_namespace {
        enter(fd_at(fds, namespace)?, LinkNameSpaceType::User)
            .step("enter the box's user namespace")?;
    }
    become_root(&order.identity)?;
    // After the uid changes: those reset it.
    set_dumpable_behavior(DumpableBehavior::NotDumpable).step("close the mounter to ptrace")
}

fn enter_mounts(order: &MountOrder, fds: &[OwnedFd]) -> Result<(), StepError> {
    enter(fd_at(fds, order.mount_namespace)?, LinkNameSpaceType::Mount)
        .step("enter the box's mount namespace")
}

/// The box has let go of the host's mounts; a new copy of them, the box's own and for this process
/// alone, shows paths of the host again.
fn copy_host_mounts() -> Result<(), StepError> {
    // SAFETY: one thread, and no descriptor table is unshared.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }.step("copy the host's mounts")?;
    root::cut_propagation()
}

/// The root and the working directory of a process that enters a mount namespace are that
/// namespace's own.
fn enter(namespace: BorrowedFd<'_>, kind: LinkNameSpaceType) -> rustix::io::Result<()> {
    move_into_link_name_space(namespace, Some(kind))
}
