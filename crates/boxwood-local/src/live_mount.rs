//! Adds a mount to a box that is running.
//!
//! Comes in: an admitted mount. Goes out: nothing, or the step that failed. Never here: the box's
//! namespaces entered by this process. The spawner forks a short-lived *mounter* that does, and that
//! is killed when it does not answer: a host file system may hang, and what the box does to the
//! place is the box's choice.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use boxwood_api::MountMode;
use boxwood_backend::{MountError, StartError};
use boxwood_init::{Channel, FromMounter, Identity, MountOrder, MountWork, ToSpawner};
use boxwood_policy::AdmittedMount;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use crate::host::LocalHost;
use crate::mount_plan::mount_plan;
use crate::namespace;
use crate::remains::Remains;
use crate::spawner::{Born, into_io};

/// A mounter answers within a millisecond or two; a busy host may need longer.
const DEADLINE: Duration = Duration::from_secs(10);
/// For a killed mounter to be gone.
const LAST_MOMENT: Duration = Duration::from_secs(1);

/// The namespaces of a box that a mounter enters. Opened before the box is one: afterwards its init
/// is closed to everybody who is not root. Holding them keeps the box's mounts alive, so they are
/// let go of with the box.
pub struct Doors {
    /// `None` where the box has the host's own.
    user: Option<OwnedFd>,
    mounts: OwnedFd,
    net: OwnedFd,
}

/// The doors' places in a list of descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DoorPlaces {
    pub(crate) user: Option<usize>,
    pub(crate) mounts: usize,
    pub(crate) net: usize,
}

impl Doors {
    /// Never our own mounts: whoever enters by these doors mounts over `/tmp` and `/home`.
    pub fn open(init: Pid) -> io::Result<Self> {
        if namespace::is_shared(init, "mnt")? {
            return Err(io::Error::other("the box has the host's own mounts"));
        }
        let open = |name: &str| {
            let path = format!("/proc/{}/ns/{name}", init.as_raw_nonzero());
            File::open(path).map(OwnedFd::from)
        };
        Ok(Self {
            user: if namespace::is_shared(init, "user")? {
                None
            } else {
                Some(open("user")?)
            },
            mounts: open("mnt")?,
            net: open("net")?,
        })
    }

    /// Those that init kept for us: an ordinary user cannot open them again. Never our own mounts, as
    /// above; that they are the box's is init's word.
    pub(crate) fn kept(places: DoorPlaces, fds: &mut [Option<OwnedFd>]) -> io::Result<Self> {
        let mut take = |place: usize| {
            let fd = fds.get_mut(place).and_then(Option::take);
            fd.ok_or_else(|| io::Error::other("a namespace of the box is missing"))
        };
        let doors = Self {
            user: places.user.map(&mut take).transpose()?,
            mounts: take(places.mounts)?,
            net: take(places.net)?,
        };
        for (fd, name) in [(Some(&doors.mounts), "mnt"), (doors.user.as_ref(), "user")] {
            if let Some(fd) = fd
                && namespace::is_own(fd.as_fd(), name)?
            {
                return Err(io::Error::other(format!(
                    "the box has the host's own {name} namespace"
                )));
            }
        }
        Ok(doors)
    }

    pub(crate) fn add_to(&self, fds: &mut Vec<OwnedFd>) -> io::Result<DoorPlaces> {
        let mut add = |fd: &OwnedFd| {
            fds.push(fd.try_clone()?);
            Ok::<_, io::Error>(fds.len() - 1)
        };
        Ok(DoorPlaces {
            mounts: add(&self.mounts)?,
            net: add(&self.net)?,
            user: self.user.as_ref().map(add).transpose()?,
        })
    }
}

/// Landlock knows the places that the box could write to when it began, and cannot be told of
/// others; a mount that cannot be written although it should be is refused instead.
pub(crate) fn check_fence(fence: &[String], mount: &AdmittedMount) -> Result<(), MountError> {
    let inside = |place: &String| {
        let rest = mount.mount_path().strip_prefix(place.trim_end_matches('/'));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    if mount.mode() != MountMode::Rw || fence.is_empty() || fence.iter().any(inside) {
        return Ok(());
    }
    Err(failed(
        mount,
        "a writable mount joins a running box only below the workspace, `/tmp` or home",
        io::ErrorKind::PermissionDenied.into(),
    ))
}

/// Blocks for a few milliseconds, at the worst for a little longer than [`DEADLINE`].
pub(crate) fn mount(
    host: &LocalHost,
    remains: &Remains,
    mount: &AdmittedMount,
) -> Result<(), MountError> {
    let doors = remains.doors().ok_or_else(|| no_doors(remains, mount))?;
    let step = |step: &'static str| move |source| failed(mount, step, source);
    let mut fds = Vec::new();
    let places = doors
        .add_to(&mut fds)
        .map_err(step("hand over the box's namespaces"))?;
    drop(doors);
    let plan =
        mount_plan(host, mount, &remains.ids, &mut fds).map_err(|error| not_drawn(mount, error))?;
    let work = MountWork::Join(plan);
    let order = order(remains.ids.identity, &places, work);
    match carry_out(host, &order, &fds, remains) {
        Outcome::Done => Ok(()),
        Outcome::Failed { step, source } if remains.is_alive() => Err(failed(mount, step, source)),
        Outcome::Failed { .. } | Outcome::BoxGone => Err(MountError::Gone),
    }
}

pub(crate) fn order(identity: Identity, places: &DoorPlaces, work: MountWork) -> MountOrder {
    MountOrder {
        identity,
        user_namespace: places.user,
        mount_namespace: places.mounts,
        net_namespace: places.net,
        work,
    }
}

/// What came of an order.
pub(crate) enum Outcome {
    Done,
    Failed { step: String, source: io::Error },
    BoxGone,
}

/// Has a mounter carry out an order. Blocks for a few milliseconds, at the worst for a little longer
/// than [`DEADLINE`].
pub(crate) fn carry_out(
    host: &LocalHost,
    order: &MountOrder,
    fds: &[OwnedFd],
    remains: &Remains,
) -> Outcome {
    let ask = || {
        let (ours, theirs) = Channel::pair()?;
        let mounter = host.spawner.ask(ToSpawner::Mounter, &theirs)?;
        drop(theirs);
        let borrowed: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
        ours.send(order, &borrowed).map_err(into_io)?;
        Ok((ours, mounter))
    };
    let (ours, mounter) = match ask() {
        Ok(asked) => asked,
        Err(source) => {
            let step = "start the mounter".to_owned();
            return Outcome::Failed { step, source };
        }
    };
    match hear(&ours, &mounter, remains) {
        Heard::Answer(FromMounter::Done) => Outcome::Done,
        Heard::Answer(FromMounter::Failed { step, errno }) => Outcome::Failed {
            step,
            source: io::Error::from_raw_os_error(errno),
        },
        Heard::BoxGone => Outcome::BoxGone,
        Heard::Nothing(source) => Outcome::Failed {
            step: "hear from the mounter".to_owned(),
            source,
        },
    }
}

fn no_doors(remains: &Remains, mount: &AdmittedMount) -> MountError {
    if remains.is_alive() {
        let denied = io::ErrorKind::PermissionDenied.into();
        return failed(mount, "open the box's namespaces", denied);
    }
    MountError::Gone
}

enum Heard {
    Answer(FromMounter),
    BoxGone,
    Nothing(io::Error),
}

/// Waits for the answer, for as long as there is a box to mount in. Leaves no mounter behind.
fn hear(channel: &Channel, mounter: &Born, remains: &Remains) -> Heard {
    let init = remains.pidfd.get_ref();
    let ready = first_ready(&[channel.as_fd(), init.as_fd()], DEADLINE);
    let because = match ready {
        Ok(Some(0)) => match channel.receive::<FromMounter>() {
            Ok((answer, _)) => return Heard::Answer(answer),
            Err(error) => Heard::Nothing(into_io(error)),
        },
        Ok(Some(_)) => Heard::BoxGone,
        Ok(None) => Heard::Nothing(io::ErrorKind::TimedOut.into()),
        Err(error) => Heard::Nothing(error),
    };
    // Failing means that it is dead already.
    let _ = pidfd_send_signal(&mounter.pidfd, Signal::KILL);
    let _ = first_ready(&[mounter.pidfd.as_fd()], LAST_MOMENT);
    // Its last word counts: it may have been done when it was killed.
    match (because, first_ready(&[channel.as_fd()], Duration::ZERO)) {
        (Heard::Nothing(error), Ok(Some(_))) => match channel.receive::<FromMounter>() {
            Ok((answer, _)) => Heard::Answer(answer),
            Err(_) => Heard::Nothing(error),
        },
        (because, _) => because,
    }
}

/// The first of `fds` that can be read, or whose other end is gone.
fn first_ready(fds: &[BorrowedFd<'_>], within: Duration) -> io::Result<Option<usize>> {
    let until = Instant::now() + within;
    let mut looks: Vec<PollFd<'_>> = fds
        .iter()
        .map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN))
        .collect();
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut looks, Some(&left)) {
            Ok(0) => return Ok(None),
            Ok(_) => return Ok(looks.iter().position(|look| !look.revents().is_empty())),
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

fn not_drawn(mount: &AdmittedMount, error: StartError) -> MountError {
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
