//! The system call filter that the engine puts on, below the one that init puts on.
//!
//! It refuses the same calls, so that whatever enters the container by another way (an operator's
//! `exec`) is fenced as commands are. The engine's own default would refuse `clone3`, by which
//! commands are born in their cgroup; for commands init takes that call away itself.

use std::fs;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

fn profile() -> Value {
    let names: Vec<&str> = boxwood_init::denied_calls().map(|(name, _)| name).collect();
    json!({
        "defaultAction": "SCMP_ACT_ALLOW",
        "syscalls": [{ "names": names, "action": "SCMP_ACT_ERRNO", "errnoRet": 1 }],
    })
}

/// Writes the profile where the engine's program can read it, anew for every daemon.
pub(crate) fn write(run_dir: &Path) -> io::Result<PathBuf> {
    fs::create_dir_all(run_dir)?;
    let path = run_dir.join("seccomp.json");
    let fresh = run_dir.join(format!("seccomp.json.{}", std::process::id()));
    let _ = fs::remove_file(&fresh);
    let file = fs::File::options()
        .write(true)
        .create_new(true)
        .mode(0o644)
        .open(&fresh)?;
    serde_json::to_writer(file, &profile())?;
    fs::rename(&fresh, &path)?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_opens_containers_is_refused_and_what_init_needs_is_not() {
        let text = profile().to_string();
        for name in [
            "\"mount\"",
            "\"setns\"",
            "\"bpf\"",
            "\"ptrace\"",
            "\"keyctl\"",
        ] {
            assert!(text.contains(name), "{name}");
        }
        for name in ["\"clone3\"", "\"seccomp\"", "\"setresuid\""] {
            assert!(!text.contains(name), "{name}");
        }
    }
}
