//! Whoever is in charge of this box: the daemon that made it, nobody for a while, or the next one.
//!
//! Comes in: the channel that a box begins with, and a socket on which later daemons call. Goes out:
//! events to whoever is there. Never here: what an event is about. Without a door a box ends with its
//! channel.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use boxwood_init::{Channel, FromInit, Plan};
use boxwood_sys::clone::exit_now;
use boxwood_sys::peer;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{SocketFlags, accept_with, listen};
use rustix::time::{ClockId, clock_gettime};

use crate::birth::fd_at;
use crate::step::{Step, StepError};

/// Callers that may wait while init is busy with another.
const WAITING: i32 = 4;
/// Between two looks at the clock, in seconds. The one that `poll` goes by stands still while the
/// machine sleeps.
const LOOK: u64 = 30;

pub(crate) struct Door {
    listener: OwnedFd,
    grace: Duration,
}

impl Door {
    /// The one that the plan names. Listening is what writes this process's number onto the socket:
    /// whoever connects later sees it, and not the daemon's that bound it.
    pub(crate) fn open(plan: &Plan, fds: &[OwnedFd]) -> Result<Option<Self>, StepError> {
        let Some(outlive) = &plan.outlive else {
            return Ok(None);
        };
        // Above the numbers that commands get.
        let listener = rustix::io::fcntl_dupfd_cloexec(fd_at(fds, outlive.door)?, 10)
            .step("keep the box's door")?;
        rustix::io::ioctl_fionbio(&listener, true).step("watch the box's door")?;
        listen(&listener, WAITING).step("listen at the box's door")?;
        Ok(Some(Self {
            listener,
            grace: Duration::from_secs(outlive.grace_sec),
        }))
    }
}

pub(crate) struct Daemon {
    channel: Option<Channel>,
    door: Option<Door>,
    /// Since when nobody has been there, after the machine's start.
    alone_since: Option<Duration>,
}

impl Daemon {
    pub(crate) fn new(channel: Channel, door: Option<Door>) -> Self {
        Self {
            channel: Some(channel),
            door,
            alone_since: None,
        }
    }

    pub(crate) fn channel(&self) -> Option<&Channel> {
        self.channel.as_ref()
    }

    pub(crate) fn listener(&self) -> Option<BorrowedFd<'_>> {
        self.door.as_ref().map(|door| door.listener.as_fd())
    }

    /// Says something to whoever is there. One that has gone is found to be gone when it is heard out.
    pub(crate) fn tell(&self, event: &FromInit, fds: &[BorrowedFd<'_>]) {
        if let Some(channel) = &self.channel
            && channel.send(event, fds).is_err()
            && self.door.is_none()
        {
            exit_now(0);
        }
    }

    /// Nobody is there any more. A box that cannot be found again ends here.
    pub(crate) fn lost(&mut self) {
        if self.door.is_none() {
            exit_now(0);
        }
        self.channel = None;
        self.alone_since = Some(since_boot());
    }

    /// How long to wait for the next daemon; the box's end when that is over.
    pub(crate) fn patience(&self) -> Option<Timespec> {
        let (since, door) = (self.alone_since?, self.door.as_ref()?);
        let alone = since_boot().saturating_sub(since);
        // None at all means to end at once.
        let Some(left) = door.grace.checked_sub(alone).filter(|left| !left.is_zero()) else {
            exit_now(0)
        };
        // Rounded up: waking a moment early would mean to wait for nothing, many times.
        Some(Timespec {
            tv_sec: left.as_secs().min(LOOK).cast_signed(),
            tv_nsec: 999_999_999,
        })
    }

    /// The next daemon at the door, if it is one: it has no number in this process namespace, which
    /// every process of the box has.
    pub(crate) fn next(&self) -> Option<Channel> {
        let caller = accept_with(self.listener()?, SocketFlags::CLOEXEC).ok()?;
        matches!(peer::pid(caller.as_fd()), Ok(0)).then(|| Channel::from(caller))
    }

    pub(crate) fn replace(&mut self, channel: Channel) {
        self.channel = Some(channel);
        self.alone_since = None;
    }

    /// Whether the one that is there has said something that was not heard yet, or has gone.
    pub(crate) fn has_spoken(&self) -> bool {
        let Some(channel) = &self.channel else {
            return false;
        };
        let mut look = [PollFd::new(channel, PollFlags::IN)];
        let moment = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        matches!(poll(&mut look, Some(&moment)), Ok(1..))
    }
}

/// Sleep included, and nobody can set it.
fn since_boot() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default()
}
