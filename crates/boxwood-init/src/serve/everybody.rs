//! A signal to everybody in the box.

use boxwood_init::KillScope;
use boxwood_sys::clone::{self, exit_now};
use rustix::process::{Pid, Signal, kill_process};

use super::{Init, Running};

impl Init<'_> {
    /// In one sweep that no fork slips through, where it meets nobody else. File operations are spared:
    /// somebody may be removing what there is too much of.
    pub(super) fn signal_everybody(&mut self, signal: i32) {
        if !self.relayed {
            // Whoever asks for this has no cgroups, so every command has a supervisor.
            let of_files = |running: &&Running| running.supervisor.is_none();
            let running = self.running.iter().filter(of_files);
            let spared: Vec<i32> = running.map(|running| running.pid).collect();
            if !spared.is_empty() {
                signal_others(&spared, signal);
                return;
            }
            // SAFETY: integers only. Everybody but us.
            unsafe { libc::kill(-1, signal) };
            return;
        }
        // Everybody with the commands' uid: the relay has ours.
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
        // There may have been no room for another process.
        let ids: Vec<u64> = self.running.iter().map(|running| running.id).collect();
        for id in ids {
            self.signal(id, signal, KillScope::Tree);
        }
    }
}

/// Rounds of looking for everybody: each finds whoever was forked during the one before.
const ROUNDS: usize = 20;

fn signal_others(spared: &[i32], signal: i32) {
    let Some(signal) = Signal::from_named_raw(signal) else {
        return;
    };
    let own = rustix::process::getpid();
    for _ in 0..ROUNDS {
        let others = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let others = others.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let others = others.filter(|pid| !spared.contains(pid));
        let others: Vec<Pid> = others.filter_map(Pid::from_raw).collect();
        let sent = others.iter().filter(|pid| **pid != own);
        // The dead that nobody has waited for take a signal too; the last rounds are for them.
        if sent
            .filter(|pid| kill_process(**pid, signal).is_ok())
            .count()
            == 0
        {
            return;
        }
    }
}
