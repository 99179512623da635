//! Adds a mount to a box that is running.
//!
//! The spawner forks a short-lived helper that enters the namespaces of the box, because the daemon itself
//! must not enter them. A helper that does not reply is killed: a host file system may hang, and the box
//! controls the mount point.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use boxwood_api::MountMode;
use boxwood_backend::{MountError, StartError};
use boxwood_init::{Channel, FromMountHelper, MountRequest, MountWork, ToSpawner};
use boxwood_policy::AdmittedMount;
use rustix::process::{Pid, Signal, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use crate::host::LocalHost;
use crate::host::spawner::{SpawnedProcess, into_io};
use crate::mounts::plan::mount_plan;
use crate::mounts::{is_own, is_shared};
use crate::process::async_fd::{first_ready, is_readable};
use crate::sandbox::resources::BoxResources;

/// A helper replies within a few milliseconds; a busy host may need longer.
const DEADLINE: Duration = Duration::from_secs(10);
/// How long a killed helper may take to exit.
const KILL_TIMEOUT: Duration = Duration::from_secs(1);

/// The namespaces of a box that a helper enters. They must be opened before init changes its uid: afterwards
/// only root may open them. They keep the mounts of the box alive, so they are closed when the box ends.
pub struct BoxNamespaces {
    /// `None` if the box uses the host's user namespace.
    user: Option<OwnedFd>,
    mounts: OwnedFd,
    net: OwnedFd,
}

/// Indexes of the namespaces in a list of descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NamespaceIndexes {
    pub(crate) user: Option<usize>,
    pub(crate) mounts: usize,
    pub(crate) net: usize,
}

impl BoxNamespaces {
    /// Fails if the mount namespace is the daemon's own: a helper would mount over the host's `/tmp`.
    pub fn open(init: Pid) -> io::Result<Self> {
        if is_shared(init, "mnt")? {
            return Err(io::Error::other(
                "the box shares the host's mount namespace",
            ));
        }
        let open = |name: &str| {
            let path = format!("/proc/{}/ns/{name}", init.as_raw_nonzero());
            File::open(path).map(OwnedFd::from)
        };
        Ok(Self {
            user: if is_shared(init, "user")? {
                None
            } else {
                Some(open("user")?)
            },
            mounts: open("mnt")?,
            net: open("net")?,
        })
    }

    /// Uses the descriptors that init kept, because an ordinary user cannot open the namespaces again.
    /// Fails if one is the daemon's own; that they are the box's cannot be verified.
    pub(crate) fn from_kept(
        indexes: NamespaceIndexes,
        fds: &mut [Option<OwnedFd>],
    ) -> io::Result<Self> {
        let mut take = |index: usize| {
            let fd = fds.get_mut(index).and_then(Option::take);
            fd.ok_or_else(|| io::Error::other("a namespace of the box is missing"))
        };
        let namespaces = Self {
            user: indexes.user.map(&mut take).transpose()?,
            mounts: take(indexes.mounts)?,
            net: take(indexes.net)?,
        };
        for (fd, name) in [
            (Some(&namespaces.mounts), "mnt"),
            (namespaces.user.as_ref(), "user"),
        ] {
            if let Some(fd) = fd
                && is_own(fd.as_fd(), name)?
            {
                return Err(io::Error::other(format!(
                    "the box shares the host's {name} namespace"
                )));
            }
        }
        Ok(namespaces)
    }

    pub(crate) fn add_to(&self, fds: &mut Vec<OwnedFd>) -> io::Result<NamespaceIndexes> {
        let mut add = |fd: &OwnedFd| {
            fds.push(fd.try_clone()?);
            Ok::<_, io::Error>(fds.len() - 1)
        };
        Ok(NamespaceIndexes {
            mounts: add(&self.mounts)?,
            net: add(&self.net)?,
            user: self.user.as_ref().map(add).transpose()?,
        })
    }
}

/// Landlock rules are fixed when the box starts. A writable mount outside of them could not be written to,
/// so it is refused.
pub(crate) fn check_writable(
    writable_paths: &[String],
    mount: &AdmittedMount,
) -> Result<(), MountError> {
    let inside = |path: &String| {
        let rest = mount.mount_path().strip_prefix(path.trim_end_matches('/'));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    if mount.mode() != MountMode::Rw
        || writable_paths.is_empty()
        || writable_paths.iter().any(inside)
    {
        return Ok(());
    }
    Err(failed(
        mount,
        "writable mounts can be added to a running box only below the workspace, `/tmp` or home",
        io::ErrorKind::PermissionDenied.into(),
    ))
}

/// Blocks for a few milliseconds, at most for little longer than [`DEADLINE`].
pub(crate) fn mount(
    host: &LocalHost,
    resources: &BoxResources,
    mount: &AdmittedMount,
) -> Result<(), MountError> {
    let mut fds = Vec::new();
    let plan = mount_plan(host, mount, &resources.ids, &mut fds)
        .map_err(|error| plan_error(mount, error))?;
    let work = MountWork::AddMount(plan);
    carry_out(host, resources, work, fds).map_err(|error| match error {
        HelperError::Step { step, source } if resources.is_alive() => failed(mount, step, source),
        HelperError::Step { .. } | HelperError::BoxGone => MountError::Gone,
    })
}

pub(crate) enum HelperError {
    BoxGone,
    Step { step: String, source: io::Error },
}

/// Has a helper do `work`, whose descriptors are `fds`. Blocks for a few milliseconds, at most for little
/// longer than [`DEADLINE`].
pub(crate) fn carry_out(
    host: &LocalHost,
    resources: &BoxResources,
    work: MountWork,
    mut fds: Vec<OwnedFd>,
) -> Result<(), HelperError> {
    let step = |step: &str| {
        let step = step.to_owned();
        move |source| HelperError::Step { step, source }
    };
    let namespaces = resources
        .namespaces()
        .ok_or_else(|| step("open the box's namespaces")(io::ErrorKind::PermissionDenied.into()))?;
    let indexes = namespaces
        .add_to(&mut fds)
        .map_err(step("duplicate the box's namespaces"))?;
    drop(namespaces);
    // The namespaces were opened by init's pid, which may be reused once init is dead.
    if !resources.is_alive() {
        return Err(HelperError::BoxGone);
    }
    let request = MountRequest {
        identity: resources.ids.identity,
        user_namespace: indexes.user,
        mount_namespace: indexes.mounts,
        net_namespace: indexes.net,
        work,
    };
    let begin = || {
        let (channel, helper_channel) = Channel::pair()?;
        let helper = host
            .spawner
            .spawn(ToSpawner::MountHelper, &helper_channel)?;
        drop(helper_channel);
        let borrowed: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
        channel.send(&request, &borrowed).map_err(into_io)?;
        Ok((channel, helper))
    };
    let (channel, helper) = begin().map_err(step("start the mount helper"))?;
    match wait_for_reply(&channel, &helper, resources) {
        Ok(FromMountHelper::Done) => Ok(()),
        Ok(FromMountHelper::Failed { step, errno }) => Err(HelperError::Step {
            step,
            source: io::Error::from_raw_os_error(errno),
        }),
        Err(Some(error)) => Err(step("receive the reply of the mount helper")(error)),
        Err(None) => Err(HelperError::BoxGone),
    }
}

/// Waits for the reply while the box is running; the error is `None` if the box is gone. The helper has exited when
/// this returns.
fn wait_for_reply(
    channel: &Channel,
    helper: &SpawnedProcess,
    resources: &BoxResources,
) -> Result<FromMountHelper, Option<io::Error>> {
    let receive = || match channel.receive::<FromMountHelper>() {
        Ok((answer, _)) => Ok(answer),
        Err(error) => Err(Some(into_io(error))),
    };
    let init = resources.pidfd.get_ref();
    let outcome = match first_ready(&[channel.as_fd(), init.as_fd()], DEADLINE) {
        Ok(Some(0)) => receive(),
        Ok(Some(_)) => Err(None),
        Ok(None) => Err(Some(io::ErrorKind::TimedOut.into())),
        Err(error) => Err(Some(error)),
    };
    if outcome.is_ok() {
        return outcome;
    }
    // An error means that it is dead already.
    let _ = pidfd_send_signal(&helper.pidfd, Signal::KILL);
    is_readable(&helper.pidfd, KILL_TIMEOUT);
    // The helper may have replied before it was killed.
    match outcome {
        Err(Some(error)) if is_readable(channel, Duration::ZERO) => receive().or(Err(Some(error))),
        outcome => outcome,
    }
}

fn plan_error(mount: &AdmittedMount, error: StartError) -> MountError {
    match error {
        StartError::Step { step, source } => failed(mount, step, source),
        error => failed(mount, "prepare its source", io::Error::other(error)),
    }
}

pub(crate) fn failed(
    mount: &AdmittedMount,
    step: impl Into<String>,
    source: io::Error,
) -> MountError {
    MountError::Step {
        mount_path: mount.mount_path().to_owned(),
        step: step.into(),
        source,
    }
}
