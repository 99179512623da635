//! Adds one mount to a box that is running, and ends.
//!
//! Comes in: an order with the box's namespaces and the mount's source. Goes out: one answer. Never
//! here: the box's process namespace. Nobody in the box can see this process, so nobody there can
//! stop it, trace it or take its descriptors; and from its first step on it has no right outside of
//! the box's user namespace.

use std::os::fd::{BorrowedFd, OwnedFd};

use boxwood_init::{Channel, FromMounter, MountOrder, MountSource};
use boxwood_sys::clone::exit_now;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

use crate::birth::{become_root, fd_at};
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
    let (identity, mount) = (&order.identity, &order.mount);
    let box_mounts = fd_at(fds, order.mount_namespace)?;
    enter(fd_at(fds, order.user_namespace)?, LinkNameSpaceType::User)
        .step("enter the box's user namespace")?;
    become_root(identity)?;
    // After the uid changes: those reset it.
    set_dumpable_behavior(DumpableBehavior::NotDumpable).step("close the mounter to ptrace")?;
    let enter_box =
        || enter(box_mounts, LinkNameSpaceType::Mount).step("enter the box's mount namespace");
    let tree = match mount.source {
        // Attributes may be set by whoever may mount where he stands, which is in the box.
        MountSource::Detached { .. } => {
            enter_box()?;
            root::bind(mount, fds)?
        }
        // The box has let go of the host's mounts; a new copy of them, the box's own and for this
        // process alone, shows the path again.
        MountSource::SamePath { .. } => {
            // SAFETY: one thread, and no descriptor table is unshared.
            unsafe { unshare_unsafe(UnshareFlags::NEWNS) }.step("copy the host's mounts")?;
            root::cut_propagation()?;
            let tree = root::bind(mount, fds)?;
            enter_box()?;
            tree
        }
    };
    root::put_over(identity, &tree, &mount.target, mount.is_dir)
}

/// The root and the working directory of a process that enters a mount namespace are that
/// namespace's own.
fn enter(namespace: BorrowedFd<'_>, kind: LinkNameSpaceType) -> rustix::io::Result<()> {
    move_into_link_name_space(namespace, Some(kind))
}
