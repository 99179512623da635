//! The mount helper: a short-lived fork of the spawner that adds a mount to a running box, or populates the
//! root file system of a box that an engine or a jail created.
//!
//! It enters the box's mount, user and network namespaces but not its PID namespace, so processes in the box
//! cannot see, stop or trace it. Where the box has its own user namespace, the helper has no privileges
//! outside of it once it has entered.

use std::os::fd::{BorrowedFd, OwnedFd};

use boxwood_init::{
    Channel, FromMountHelper, MountPlan, MountRequest, MountSource, MountWork, Plan, RootPlan,
};
use boxwood_sys::clone::exit_now;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

use crate::rootfs;
use crate::setup::{become_root, fd_at, network};
use crate::step::{Step, StepError};

/// Handles one request.
pub(crate) fn run(channel: &Channel) -> ! {
    let _ = rustix::thread::set_name(c"boxwood-mount");
    let Ok((request, fds)) = channel.receive::<MountRequest>() else {
        exit_now(0)
    };
    let answer = match apply(&request, &fds) {
        Ok(()) => FromMountHelper::Done,
        Err(StepError { step, errno }) => FromMountHelper::Failed { step, errno },
    };
    // The daemon may have exited; the mount stays.
    let _ = channel.send(&answer, &[]);
    exit_now(0)
}

fn apply(request: &MountRequest, fds: &[OwnedFd]) -> Result<(), StepError> {
    match &request.work {
        MountWork::AddMount(mount) => add_mount(request, mount, fds),
        MountWork::PopulateRootfs(plan) => populate(request, plan, fds),
    }
}

fn add_mount(request: &MountRequest, mount: &MountPlan, fds: &[OwnedFd]) -> Result<(), StepError> {
    enter_user_namespace(request, fds)?;
    let tree = match mount.source {
        // Setting mount attributes needs privileges in the current mount namespace, so enter first.
        MountSource::Detached { .. } => {
            enter_mounts(request, fds)?;
            rootfs::bind(mount, fds)?
        }
        MountSource::SamePath { .. } => {
            copy_host_mounts()?;
            let tree = rootfs::bind(mount, fds)?;
            enter_mounts(request, fds)?;
            tree
        }
    };
    rootfs::put_over(&request.identity, &tree, &mount.target, mount.is_dir)
}

fn populate(request: &MountRequest, plan: &Plan, fds: &[OwnedFd]) -> Result<(), StepError> {
    // The host's directories are opened while this process still has the host's privileges.
    let system = match plan.root {
        RootPlan::Jail => Some(rootfs::System::from_host()?),
        _ => None,
    };
    let net = fd_at(fds, request.net_namespace)?;
    enter_user_namespace(request, fds)?;
    enter(net, LinkNameSpaceType::Network).step("enter the box's network namespace")?;
    let mut by_path = plan.workspace.iter().chain(&plan.mounts);
    let by_path = by_path.any(|mount| matches!(mount.source, MountSource::SamePath { .. }));
    let mounts = if by_path {
        copy_host_mounts()?;
        let mounts = rootfs::PlannedMounts::open(plan, fds)?;
        enter_mounts(request, fds)?;
        mounts
    } else {
        enter_mounts(request, fds)?;
        rootfs::PlannedMounts::open(plan, fds)?
    };
    match &system {
        Some(system) => rootfs::populate_jail(plan, system, &mounts)?,
        None => rootfs::populate_container(plan, &mounts)?,
    }
    network(plan.network.as_ref())
}

fn enter_user_namespace(request: &MountRequest, fds: &[OwnedFd]) -> Result<(), StepError> {
    if let Some(namespace) = request.user_namespace {
        enter(fd_at(fds, namespace)?, LinkNameSpaceType::User)
            .step("enter the box's user namespace")?;
    }
    become_root(&request.identity)?;
    // After the uid changes, which reset it.
    set_dumpable_behavior(DumpableBehavior::NotDumpable).step("make the mount helper undumpable")
}

fn enter_mounts(request: &MountRequest, fds: &[OwnedFd]) -> Result<(), StepError> {
    let namespace = fd_at(fds, request.mount_namespace)?;
    enter(namespace, LinkNameSpaceType::Mount).step("enter the box's mount namespace")
}

/// Creates a private copy of the host's mounts that belongs to the box's user namespace. The box itself has
/// none of them, and host paths must be opened here.
fn copy_host_mounts() -> Result<(), StepError> {
    // SAFETY: one thread, and no descriptor table is unshared.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }.step("copy the host's mounts")?;
    rootfs::cut_propagation()
}

/// Entering a mount namespace also sets the root and working directory to that namespace's root.
fn enter(namespace: BorrowedFd<'_>, kind: LinkNameSpaceType) -> rustix::io::Result<()> {
    move_into_link_name_space(namespace, Some(kind))
}
