//! Validation rules for a [`SpecRequest`] that are independent of profile and file system.
//!
//! `boxwood_policy::admit` applies them first.

use crate::parse::rules::{self as field, FieldError};
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
            let rule = format!(
                "must be at most {MAX_COMMAND_BYTES} bytes, not {}",
                self.cmd.len()
            );
            return Err(FieldError::new("cmd", rule));
        }
        field::environment(&self.env)
    }

    fn validate_paths(&self) -> Result<(), FieldError> {
        if let Some(mount_path) = &self.mount_path {
            field::box_path("mount_path", mount_path)?;
        }
        match &self.workdir {
            // An empty workdir means the workspace, but only if `mount_path` is set.
            Some(workdir) if workdir.trim().is_empty() && self.mount_path.is_some() => {}
            Some(workdir) => field::box_path("workdir", workdir)?,
            None => {}
        }
        if let Some(host_path) = &self.host_path {
            field::host_path("host_path", host_path)?;
        }
        at_most_entries("extra_mounts", self.extra_mounts.len(), MAX_MOUNTS)?;
        for (index, mount) in self.extra_mounts.iter().enumerate() {
            mount
                .validate()
                .map_err(|fault| fault.within("extra_mounts", index))?;
        }
        Ok(())
    }

    fn validate_skills(&self) -> Result<(), FieldError> {
        at_most_entries("skills", self.skills.len(), MAX_SKILLS)?;
        for (index, name) in self.skills.iter().enumerate() {
            skill_name(&format!("skills[{index}]"), name)?;
        }
        Ok(())
    }

    fn validate_limits(&self) -> Result<(), FieldError> {
        if self.timeout_sec == Some(0) {
            return Err(FieldError::new("timeout_sec", "must be greater than 0"));
        }
        if self
            .memory_mb
            .is_some_and(|memory_mb| memory_mb < MIN_MEMORY_MB)
        {
            return Err(FieldError::new("memory_mb", "must be at least 32"));
        }
        if self.pids_limit == Some(0) {
            return Err(FieldError::new("pids_limit", "must be at least 1"));
        }
        let maxima = [
            ("timeout_sec", self.timeout_sec, MAX_TIMEOUT_SEC),
            ("memory_mb", self.memory_mb, MAX_MEMORY_MB),
            ("pids_limit", self.pids_limit, MAX_PIDS),
            ("workspace_quota_mb", self.workspace_quota_mb, MAX_QUOTA_MB),
        ];
        for (field, value, max) in maxima {
            if value.is_some_and(|value| value > max) {
                return Err(FieldError::new(field, format!("must be at most {max}")));
            }
        }
        self.cpus.map_or(Ok(()), cpus_in_range)
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
        "must not be empty".to_owned()
    } else if name.chars().nth(MAX_SKILL_NAME_CHARS).is_some() {
        format!("must be at most {MAX_SKILL_NAME_CHARS} characters")
    } else if name.chars().any(char::is_control) {
        "must not contain control characters".to_owned()
    } else if name.contains('/') || matches!(name, "." | "..") {
        "must be the name of a skill, not a path".to_owned()
    } else if name.trim() != name {
        "must not begin or end with white space".to_owned()
    } else {
        return Ok(());
    };
    Err(FieldError::new(field, rule))
}

fn cpus_in_range(cpus: f64) -> Result<(), FieldError> {
    let rule = if !cpus.is_finite() {
        "must be a finite number".to_owned()
    } else if cpus <= 0.0 {
        "must be greater than 0".to_owned()
    } else if cpus > MAX_CPUS {
        format!("must be at most {MAX_CPUS}")
    } else {
        return Ok(());
    };
    Err(FieldError::new("cpus", rule))
}

fn at_most_entries(field: &str, count: usize, max: usize) -> Result<(), FieldError> {
    if count > max {
        let rule = format!("must have at most {max} entries, not {count}");
        return Err(FieldError::new(field, rule));
    }
    Ok(())
}
