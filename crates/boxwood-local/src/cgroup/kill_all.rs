//! Kills every program of a box without ending the box. Init is in the box's own group, not in a
//! command's, so it survives.

use std::fs;
use std::io;
use std::path::Path;

use crate::lock;

use super::Group;
use super::freeze::{command_groups, is_gone};

impl Group {
    /// Kills by cgroup, because a command that has ended may have left processes. Empty groups are skipped:
    /// a process created in a killed group is killed too.
    pub(crate) fn kill_all(&self) -> io::Result<()> {
        let Some(parent) = self.kill.as_deref() else {
            return Ok(());
        };
        let mut outcome = Ok(());
        for group in command_groups(parent)? {
            // Marked before the check, so that a group released in between is not reused.
            let is_new = lock(&self.killed_groups).insert(group.clone());
            if !is_populated(&group) {
                // A group that was killed before stays marked, even if it is empty by now.
                if is_new {
                    self.take_killed(&group);
                }
                continue;
            }
            match fs::write(group.join("cgroup.kill"), "1") {
                Err(error) if !is_gone(&error) => outcome = Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        outcome
    }

    pub(super) fn take_killed(&self, group: &Path) -> bool {
        let mut killed_groups = lock(&self.killed_groups);
        killed_groups.remove(group)
    }
}

pub(super) fn is_populated(group: &Path) -> bool {
    let events = fs::read_to_string(group.join("cgroup.events")).unwrap_or_default();
    events.lines().any(|line| line == "populated 1")
}
