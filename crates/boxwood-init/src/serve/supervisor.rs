//! Tracks the process tree of a command without a cgroup.
//!
//! The supervisor is a *subreaper* between init and the command: it becomes the parent of every orphaned
//! descendant (new sessions, double forks), so it can find and kill them all. It runs under init's uid, so the
//! command cannot kill it unless both have the same uid (rootless without `newuidmap`).

use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use boxwood_init::KillScope;
use boxwood_sys::clone::{self, ChildStack, exit_now};
use boxwood_sys::signals;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, wait};

use crate::serve::command::{LAST_DESCRIPTOR, Prepared, Streams};

/// Init's side of a supervisor.
pub(crate) struct Supervisor {
    signals: OwnedFd,
    report: OwnedFd,
}

impl Supervisor {
    pub(crate) fn forward(&self, signal: i32, scope: KillScope) {
        let Ok(signal) = u8::try_from(signal) else {
            return;
        };
        let is_tree = u8::from(scope == KillScope::Tree);
        let _ = rustix::io::write(&self.signals, &[is_tree, signal]);
    }

    /// The command's wait status, after the supervisor has exited. A killed supervisor reports none; its
    /// command counts as killed too.
    pub(crate) fn status(&self) -> i32 {
        let mut status = [0_u8; 4];
        match rustix::io::read(&self.report, &mut status) {
            Ok(4) => i32::from_ne_bytes(status),
            _ => libc::SIGKILL,
        }
    }
}

/// Starts the command under a supervisor; the pid is the supervisor's.
pub(crate) fn start(prepared: &Prepared, streams: &Streams<'_>) -> io::Result<(i32, Supervisor)> {
    let (signals_in, signals) = pipe_with(PipeFlags::CLOEXEC)?;
    let (report, report_out) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    // SAFETY: init has one thread.
    match unsafe { clone::plain_fork() }? {
        Some(pid) => Ok((pid, Supervisor { signals, report })),
        None => supervise(prepared, streams, &signals_in, report_out),
    }
}

fn supervise(
    prepared: &Prepared,
    streams: &Streams<'_>,
    signals_in: &OwnedFd,
    report: OwnedFd,
) -> ! {
    let _ = rustix::thread::set_name(c"boxwood-exec");
    let Ok(children) = signals::child_signals() else {
        exit_now(1)
    };
    // Init finds the tree of a tagged command itself; the supervisor then only waits for the command.
    if !prepared.is_tagged() && set_child_subreaper(Some(getpid())).is_err() {
        exit_now(1);
    }
    let mut stack = ChildStack::new();
    let status = match prepared.start(&mut stack, streams, None) {
        Ok(command) => {
            close_all_but(&[signals_in, &report, &children]);
            watch(command, signals_in, &children)
        }
        // The exit status with which a shell reports a failed fork.
        Err(_) => 254 << 8,
    };
    let _ = std::fs::File::from(report).write_all(&status.to_ne_bytes());
    exit_now(0)
}

/// A copy of a pipe's write end that stays open would keep its reader from seeing end of file.
pub(crate) fn close_all_but(fds: &[&OwnedFd]) {
    let mut fds: Vec<u32> = fds
        .iter()
        .filter_map(|fd| u32::try_from(fd.as_raw_fd()).ok())
        .collect();
    fds.sort_unstable();
    let mut first = 3;
    for fd in fds {
        close_range(first, fd.saturating_sub(1));
        first = fd + 1;
    }
    close_range(first, LAST_DESCRIPTOR);
}

fn close_range(first: u32, last: u32) {
    if first <= last {
        // SAFETY: integers only. The descriptors closed belong to values this process never drops:
        // it ends with `exit_now`.
        unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    }
}

fn watch(command: i32, signals_in: &OwnedFd, children: &OwnedFd) -> i32 {
    loop {
        let mut waiting = [
            PollFd::new(signals_in, PollFlags::IN),
            PollFd::new(children, PollFlags::IN),
        ];
        let _ = poll(&mut waiting, None);
        let (requested, ended) = (waiting[0].revents(), waiting[1].revents());
        if ended.contains(PollFlags::IN) {
            signals::drain(children.as_fd());
            if let Some(status) = reap(command) {
                return status;
            }
        }
        let mut request = [0_u8; 2];
        if requested.contains(PollFlags::IN)
            && rustix::io::read(signals_in, &mut request) == Ok(2)
            && let Some(signal) = Signal::from_named_raw(i32::from(request[1]))
        {
            if request[0] == 0 {
                send(command, signal);
            } else if signal == Signal::KILL {
                return kill_all(command);
            } else {
                for pid in descendants(getpid()) {
                    send(pid, signal);
                }
            }
        }
    }
}

fn send(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        let _ = kill_process(pid, signal);
    }
}

/// Reaps children. Returns the status of the command if it was among them.
fn reap(command: i32) -> Option<i32> {
    let mut status = None;
    while let Ok(Some((pid, ended))) = wait(WaitOptions::NOHANG) {
        if pid.as_raw_nonzero().get() == command {
            status = Some(ended.as_raw());
        }
    }
    status
}

/// Kills until no child is left. Each round reparents the grandchildren to this process.
fn kill_all(command: i32) -> i32 {
    let mut status = libc::SIGKILL;
    loop {
        for pid in descendants(getpid()) {
            send(pid, Signal::KILL);
        }
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, ended))) => {
                if pid.as_raw_nonzero().get() == command {
                    status = ended.as_raw();
                }
            }
            Ok(None) => {}
            Err(_) => return status,
        }
    }
}

/// All descendants of `root`. Processes that fork during the scan can be missed.
fn descendants(root: Pid) -> Vec<i32> {
    let mut found = vec![root.as_raw_nonzero().get()];
    let mut next = 0;
    while next < found.len() {
        let pid = found[next];
        next += 1;
        let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
            continue;
        };
        for thread in threads.flatten() {
            let Ok(text) = std::fs::read_to_string(thread.path().join("children")) else {
                continue;
            };
            found.extend(
                text.split_whitespace()
                    .filter_map(|pid| pid.parse::<i32>().ok()),
            );
        }
    }
    found.remove(0);
    found
}
