//! The connection to the daemon: first the channel that started the box, later the connection of the next
//! daemon.
//!
//! Without a listener for the next daemon the box ends when its channel closes.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use boxwood_init::{Channel, FromInit, Plan};
use boxwood_sys::clone::exit_now;
use boxwood_sys::peer;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{SocketFlags, accept_with, listen};
use rustix::time::{ClockId, clock_gettime};

use crate::setup::fd_at;
use crate::step::{Step, StepError};

const BACKLOG: i32 = 4;
/// Longest `poll` timeout while waiting for a daemon. The clock of `poll` stops while the machine is
/// suspended, so the grace time is checked against the boot clock at this interval.
const POLL_SEC: u64 = 30;

pub(crate) struct DaemonListener {
    socket: OwnedFd,
    grace: Duration,
}

impl DaemonListener {
    /// Listens on the socket that the plan names. `listen` records init's pid as the peer credential that a
    /// connecting daemon sees.
    pub(crate) fn open(plan: &Plan, fds: &[OwnedFd]) -> Result<Option<Self>, StepError> {
        let Some(recovery) = &plan.recovery else {
            return Ok(None);
        };
        // Above the descriptors that commands get.
        let socket = rustix::io::fcntl_dupfd_cloexec(fd_at(fds, recovery.listener)?, 10)
            .step("duplicate the recovery socket")?;
        rustix::io::ioctl_fionbio(&socket, true).step("make the recovery socket non-blocking")?;
        listen(&socket, BACKLOG).step("listen on the recovery socket")?;
        Ok(Some(Self {
            socket,
            grace: Duration::from_secs(recovery.grace_sec),
        }))
    }
}

pub(crate) struct DaemonConnection {
    channel: Option<Channel>,
    listener: Option<DaemonListener>,
    /// Boot time at which the daemon disconnected.
    disconnected_at: Option<Duration>,
}

impl DaemonConnection {
    pub(crate) fn new(channel: Channel, listener: Option<DaemonListener>) -> Self {
        Self {
            channel: Some(channel),
            listener,
            disconnected_at: None,
        }
    }

    pub(crate) fn channel(&self) -> Option<&Channel> {
        self.channel.as_ref()
    }

    pub(crate) fn listener(&self) -> Option<BorrowedFd<'_>> {
        self.listener
            .as_ref()
            .map(|listener| listener.socket.as_fd())
    }

    /// Sends an event if a daemon is connected. A closed connection is detected by the next receive.
    pub(crate) fn send(&self, event: &FromInit, fds: &[BorrowedFd<'_>]) {
        if let Some(channel) = &self.channel
            && channel.send(event, fds).is_err()
            && self.listener.is_none()
        {
            exit_now(0);
        }
    }

    /// The daemon has disconnected. A box without a listener ends here.
    pub(crate) fn disconnected(&mut self) {
        if self.listener.is_none() {
            exit_now(0);
        }
        self.channel = None;
        self.disconnected_at = Some(since_boot());
    }

    /// Remaining time to wait for the next daemon. Ends the box when the grace time is over.
    pub(crate) fn reconnect_timeout(&self) -> Option<Timespec> {
        let (since, listener) = (self.disconnected_at?, self.listener.as_ref()?);
        let waited = since_boot().saturating_sub(since);
        let remaining = listener.grace.checked_sub(waited);
        let Some(remaining) = remaining.filter(|remaining| !remaining.is_zero()) else {
            exit_now(0)
        };
        // Rounded up, so that waking slightly early does not poll in a loop.
        Some(Timespec {
            tv_sec: remaining.as_secs().min(POLL_SEC).cast_signed(),
            tv_nsec: 999_999_999,
        })
    }

    /// Accepts the next daemon. A process outside of the box has no pid in this PID namespace; connections
    /// from inside are rejected.
    pub(crate) fn accept(&self) -> Option<Channel> {
        let socket = accept_with(self.listener()?, SocketFlags::CLOEXEC).ok()?;
        matches!(peer::pid(socket.as_fd()), Ok(0)).then(|| Channel::from(socket))
    }

    pub(crate) fn replace(&mut self, channel: Channel) {
        self.channel = Some(channel);
        self.disconnected_at = None;
    }

    /// Whether a message or end of file is pending.
    pub(crate) fn is_readable(&self) -> bool {
        let Some(channel) = &self.channel else {
            return false;
        };
        let mut polled = [PollFd::new(channel, PollFlags::IN)];
        let no_wait = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        matches!(poll(&mut polled, Some(&no_wait)), Ok(1..))
    }
}

/// Includes suspended time and cannot be set.
fn since_boot() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default()
}
