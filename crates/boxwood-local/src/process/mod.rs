//! Controls one program in a box: wait, signal, resize.

pub(crate) mod async_fd;
pub(crate) mod pipe;
pub(crate) mod streams;

use std::io;

use boxwood_backend::{
    BoxFuture, ControlError, Exit, ExitStatus, ProcessControl, Scope, TerminalSize,
};
use boxwood_init::{Ended, KillScope};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::cgroup::Counters;
use crate::sandbox::link::{self, Spawned};

impl ProcessControl for Spawned {
    fn wait(&self) -> BoxFuture<'_, Exit> {
        let mut exit = self.exit.clone();
        Box::pin(async move {
            let exit = exit.wait_for(Option::is_some).await;
            // On error the box ended without reporting this program.
            exit.ok().and_then(|exit| exit.clone()).unwrap_or_else(gone)
        })
    }

    fn signal(&self, signal: i32, scope: Scope) -> BoxFuture<'_, Result<(), ControlError>> {
        Box::pin(async move {
            let named = Signal::from_named_raw(signal).ok_or(ControlError::BadSignal(signal))?;
            if scope == Scope::Tree
                && let Some(sent) = self.signal_group(named)
            {
                return sent.map_err(|error| self.group.resources().control_failed(error));
            }
            if self.exit.borrow().is_some() {
                return Err(ControlError::Ended);
            }
            let scope = match scope {
                Scope::Process => KillScope::Process,
                Scope::Tree => KillScope::Tree,
            };
            let message = link::signal(self.id, named, scope);
            self.link
                .send(&message, &[])
                .await
                .map_err(|_| ControlError::Gone)
        })
    }

    fn resize(&self, size: TerminalSize) -> Result<(), ControlError> {
        let terminal = self.terminal.as_ref().ok_or(ControlError::NoTerminal)?;
        let size = Winsize {
            ws_row: size.rows,
            ws_col: size.cols,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(terminal, size).map_err(|errno| ControlError::Io(errno.into()))?;
        if let Some(resized) = self.link.resized.get() {
            resized.notify_one();
        }
        Ok(())
    }
}

impl Spawned {
    /// Signals every process in the program's cgroup; `None` if it has no cgroup.
    fn signal_group(&self, signal: Signal) -> Option<io::Result<()>> {
        self.group.with(|group| {
            if signal == Signal::KILL {
                return group.kill();
            }
            for pid in group.pids() {
                // The pidfd pins the process; the second check confirms that it is still in the group.
                let pinned =
                    Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
                if let Some(pinned) = pinned
                    && group.pids().contains(&pid)
                {
                    let _ = pidfd_send_signal(&pinned, signal);
                }
            }
            Ok(())
        })
    }
}

pub(crate) fn gone() -> Exit {
    Exit {
        status: ExitStatus::BoxGone,
        oom: false,
        pids_limit: false,
        disk_full: false,
        denied_syscall: None,
    }
}

/// Combines init's report with the counters of the box's cgroup.
pub(crate) fn exit(ended: Ended, before: Counters, after: Counters) -> Exit {
    // As encoded by `wait`: the low seven bits are the signal, the second byte is the exit code.
    let status = match ended.status & 0x7f {
        0 => ExitStatus::Code((ended.status >> 8) & 0xff),
        signal => ExitStatus::Signal(signal),
    };
    Exit {
        status,
        oom: after.oom > before.oom,
        pids_limit: after.pids > before.pids,
        disk_full: ended.disk_full,
        denied_syscall: ended.denied_syscall,
    }
}
