//! Ends every program of a box, and not the box.
//!
//! Comes in: nothing. Goes out: that everybody was told. Never here: init, which is in the box's own group
//! and not in a command's.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::PoisonError;

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

pub(super) fn is_populated(group: &Path) -> bool {
    let events = fs::read_to_string(group.join("cgroup.events")).unwrap_or_default();
    events.lines().any(|line| line == "populated 1")
}
