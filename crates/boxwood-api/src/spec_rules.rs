//! Validation rules for a [`SpecRequest`] that are independent of profile and file system.
//!
//! `boxwood_policy::admit` applies them first.

use crate::field::{self, FieldError};
use crate::{MountSpec, SpecRequest};

/// Maximum length of a command.
pub const MAX_COMMAND_BYTES: usize = 1024 * 1024;

/// Mounts per box, without the workspace.
pub const MAX_MOUNTS: usize = 64;

/// Skills per request.
pub const MAX_SKILLS: usize = 64;

/// The longest name that a skill may have.
const MAX_SKILL_NAME_CHARS: usize = 64;

// Upper limits that keep later arithmetic (MiB to bytes, seconds to deadlines) from overflowing.
// Sensible limits are set by profiles.
const MAX_TIMEOUT_SEC: u64 = 1_000_000_000;
const MAX_CPUS: f64 = 4096.0;
const MIN_MEMORY_MB: u64 = 32;
const MAX_MEMORY_MB: u64 = 1 << 26;
/// The kernel's maximum process id.
const MAX_PIDS: u64 = 1 << 22;
const MAX_QUOTA_MB: u64 = 1 << 30;

impl SpecRequest {
    /// Checks all rules that need only the request itself.
    pub fn validate(&self) -> Result<(), FieldError> {
        self.validate_command()?;
        self.validate_paths()?;
        self.validate_skills()?;
        self.validate_limits()?;
        let names = [
            ("image", &self.image),
            ("profile", &self.profile),
            ("backend", &self.backend),
        ];
        for (field, text) in names {
            if let Some(text) = text {
                field::without_nul(field, text)?;
            }
        }
        Ok(())
    }

    fn validate_command(&self) -> Result<(), FieldError> {
        field::without_nul("cmd", &self.cmd)?;
        if self.cmd.len() > MAX_COMMAND_BYTES {
            return Err(FieldError::new(
                "cmd",
                &format!(
                    "must be at most {MAX_COMMAND_BYTES} bytes, not {}",
                    self.cmd.len()
                ),
            ));
        }
        field::environment(&self.env)
    }

    fn validate_paths(&self) -> Result<(), FieldError> {
        if let Some(mount_path) = &self.mount_path {
            field::box_path("mount_path", mount_path)?;
        }
        match &self.workdir {
            // An empty workdir means the workspace, but only if `host_path` is set.
            Some(workdir) if workdir.trim().is_empty() && self.mount_path.is_some() => {}
            Some(workdir) => field::box_path("workdir", workdir)?,
            None => {}
        }
        if let Some(host_path) = &self.host_path {
            field::host_path("host_path", host_path)?;
        }
        if self.extra_mounts.len() > MAX_MOUNTS {
            return Err(FieldError::new(
                "extra_mounts",
                &format!(
                    "must have at most {MAX_MOUNTS} entries, not {}",
                    self.extra_mounts.len()
                ),
            ));
        }
        for (index, mount) in self.extra_mounts.iter().enumerate() {
            mount
                .validate()
                .map_err(|fault| fault.within("extra_mounts", index))?;
        }
        Ok(())
    }

    fn validate_skills(&self) -> Result<(), FieldError> {
        if self.skills.len() > MAX_SKILLS {
            return Err(FieldError::new(
                "skills",
                &format!(
                    "must have at most {MAX_SKILLS} entries, not {}",
                    self.skills.len()
                ),
            ));
        }
        for (index, name) in self.skills.iter().enumerate() {
            skill_name(&format!("skills[{index}]"), name)?;
        }
        Ok(())
    }

    fn validate_limits(&self) -> Result<(), FieldError> {
        if let Some(timeout_sec) = self.timeout_sec {
            if timeout_sec == 0 {
                return Err(FieldError::new("timeout_sec", "must be greater than 0"));
            }
            at_most("timeout_sec", timeout_sec, MAX_TIMEOUT_SEC)?;
        }
        if let Some(cpus) = self.cpus {
            cpus_in_range(cpus)?;
        }
        if let Some(memory_mb) = self.memory_mb {
            if memory_mb < MIN_MEMORY_MB {
                return Err(FieldError::new("memory_mb", "must be at least 32"));
            }
            at_most("memory_mb", memory_mb, MAX_MEMORY_MB)?;
        }
        if let Some(pids_limit) = self.pids_limit {
            if pids_limit == 0 {
                return Err(FieldError::new("pids_limit", "must be at least 1"));
            }
            at_most("pids_limit", pids_limit, MAX_PIDS)?;
        }
        if let Some(quota_mb) = self.workspace_quota_mb {
            at_most("workspace_quota_mb", quota_mb, MAX_QUOTA_MB)?;
        }
        Ok(())
    }
}

impl MountSpec {
    pub(crate) fn validate(&self) -> Result<(), FieldError> {
        field::host_path("host_path", &self.host_path)?;
        field::box_path("mount_path", &self.mount_path)
    }
}

/// The name becomes a single path component in the box.
fn skill_name(field: &str, name: &str) -> Result<(), FieldError> {
    let rule = if name.is_empty() {
        "must not be empty"
    } else if name.chars().nth(MAX_SKILL_NAME_CHARS).is_some() {
        return Err(FieldError::new(
            field,
            &format!("must be at most {MAX_SKILL_NAME_CHARS} characters"),
        ));
    } else if name.chars().any(char::is_control) {
        "must not contain control characters"
    } else if name.contains('/') || matches!(name, "." | "..") {
        "must be the name of a skill, not a path"
    } else if name.trim() != name {
        "must not begin or end with white space"
    } else {
        return Ok(());
    };
    Err(FieldError::new(field, rule))
}

fn cpus_in_range(cpus: f64) -> Result<(), FieldError> {
    if !cpus.is_finite() {
        return Err(FieldError::new("cpus", "must be a finite number"));
    }
    if cpus <= 0.0 {
        return Err(FieldError::new("cpus", "must be greater than 0"));
    }
    if cpus > MAX_CPUS {
        return Err(FieldError::new(
            "cpus",
            &format!("must be at most {MAX_CPUS}"),
        ));
    }
    Ok(())
}

fn at_most(field: &str, value: u64, most: u64) -> Result<(), FieldError> {
    if value > most {
        return Err(FieldError::new(field, &format!("must be at most {most}")));
    }
    Ok(())
}
