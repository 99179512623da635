//! Signals all programs of the box.

use boxwood_init::KillScope;
use boxwood_sys::clone::{self, exit_now};
use rustix::process::{Pid, Signal, kill_process};

use super::{Init, Running};

impl Init<'_> {
    /// One system call, so that no fork is missed, unless file operations are running. These are not signalled, because
    /// they may be removing files after a quota was exceeded.
    pub(super) fn signal_all(&mut self, signal: i32) {
        if !self.relayed {
            // Only used without cgroups, so every command has a supervisor.
            let of_files = |running: &&Running| running.supervisor.is_none();
            let running = self.running.iter().filter(of_files);
            let excluded: Vec<i32> = running.map(|running| running.pid).collect();
            if !excluded.is_empty() {
                signal_others(&excluded, signal);
                return;
            }
            // SAFETY: integers only. Signals all processes except this one.
            unsafe { libc::kill(-1, signal) };
            return;
        }
        // All processes with the uid of commands. The relay has another uid.
        let identity = self.plan.identity;
        if identity.single_uid {
            return;
        }
        // SAFETY: init has one thread.
        let forked = unsafe { clone::plain_fork() };
        if let Ok(None) = forked {
            let uid = identity.command_uid;
            // SAFETY: integers only.
            unsafe {
                if libc::syscall(libc::SYS_setresuid, uid, uid, uid) == 0 {
                    libc::kill(-1, signal);
                }
            }
            exit_now(0)
        }
        // In any case, because the fork may have failed at the process limit.
        let ids: Vec<u64> = self.running.iter().map(|running| running.id).collect();
        for id in ids {
            self.signal(id, signal, KillScope::Tree);
        }
    }
}

/// Scans of `/proc`. Each finds the processes that were forked during the previous one.
const MAX_SCANS: usize = 20;

fn signal_others(excluded: &[i32], signal: i32) {
    let Some(signal) = Signal::from_named_raw(signal) else {
        return;
    };
    let own = rustix::process::getpid();
    for _ in 0..MAX_SCANS {
        let others = boxwood_sys::procfs::pids().filter(|pid| !excluded.contains(pid));
        let others: Vec<Pid> = others.filter_map(Pid::from_raw).collect();
        let sent = others.iter().filter(|pid| **pid != own);
        // Zombies accept signals too, so the number of scans is limited.
        if sent
            .filter(|pid| kill_process(**pid, signal).is_ok())
            .count()
            == 0
        {
            return;
        }
    }
}
