//! Ends every program of a box, and not the box.
//!
//! Comes in: nothing. Goes out: that everybody was told. Never here: init, which is in the box's own group
//! and not in a command's.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::PoisonError;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::Group;
use super::freeze::{command_groups, is_gone};

impl Group {
    /// By group, whoever holds it: a command that has ended may have left somebody there. Those without
    /// anybody are left alone, because what is born into a killed group is killed too.
    pub(crate) fn kill_all(&self) -> io::Result<()> {
        let Some(parent) = self.kill.as_deref() else {
            return Ok(());
        };
        let mut outcome = Ok(());
        for group in command_groups(parent)? {
            // Said before the look: one that is given back in between is not used again either way.
            let is_new = self
                .doomed
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(group.clone());
            if !is_populated(&group) {
                // One that was killed before stays as it is, though nobody is left in it.
                if is_new {
                    self.was_doomed(&group);
                }
                continue;
            }
            kill_members(&group);
            match fs::write(group.join("cgroup.kill"), "1") {
                Err(error) if !is_gone(&error) => outcome = Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        outcome
    }

    pub(super) fn was_doomed(&self, group: &Path) -> bool {
        let mut doomed = self.doomed.lock().unwrap_or_else(PoisonError::into_inner);
        doomed.remove(group)
    }
}

/// One by one, without waiting for anybody. `cgroup.kill` misses nobody, but it waits for whoever moves a
/// process between cgroups, anywhere on the host, and that can take many times as long as filling a disk.
fn kill_members(group: &Path) {
    let members = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    let pids = members.lines().filter_map(|line| line.parse().ok());
    for pid in pids.filter_map(Pid::from_raw) {
        // Held first and looked at then: a number may be somebody else's by now.
        if let Ok(held) = pidfd_open(pid, PidfdFlags::empty())
            && is_member(pid, group)
        {
            let _ = pidfd_send_signal(held, Signal::KILL);
        }
    }
}

fn is_member(pid: Pid, group: &Path) -> bool {
    let place = format!("/proc/{}/cgroup", pid.as_raw_nonzero());
    let told = fs::read_to_string(place).unwrap_or_default();
    let unified = told.lines().find_map(|line| line.strip_prefix("0::/"));
    unified.is_some_and(|path| !path.is_empty() && group.ends_with(path))
}

pub(super) fn is_populated(group: &Path) -> bool {
    let events = fs::read_to_string(group.join("cgroup.events")).unwrap_or_default();
    events.lines().any(|line| line == "populated 1")
}
