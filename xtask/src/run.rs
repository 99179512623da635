//! Starting other programs.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

/// The root of the workspace, independent of the current directory.
pub(crate) fn workspace_root() -> PathBuf {
    let manifest_dir = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    manifest_dir
        .parent()
        .map_or_else(|| manifest_dir.clone(), PathBuf::from)
}

/// Where cargo puts what it builds.
pub(crate) fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| workspace_root().join("target"), PathBuf::from)
}

/// The cargo that runs us, started in the workspace's root.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(workspace_root());
    as_from_a_shell(&mut command);
    command
}

/// Removes variables that cargo sets for a program that it runs. With them another cargo would consider build scripts
/// changed, and every tier would build the same crates again.
pub(crate) fn as_from_a_shell(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
}

/// The daemon's program, built now.
pub(crate) fn build_boxwood() -> Result<PathBuf> {
    // The features and targets of the other tiers. Without a test, dependencies would be built again without the
    // features that only tests enable.
    let features = ["--workspace", "--all-features"];
    let targets = ["--bin", "boxwood", "--test", "storm"];
    check(
        cargo()
            .arg("build")
            .args(features)
            .args(targets)
            .arg("--quiet"),
    )?;
    let program = target_dir().join("debug/boxwood");
    ensure!(program.is_file(), "the build left no `debug/boxwood`");
    Ok(program)
}

/// Runs a command to its end, with the output of this process and without input.
pub(crate) fn check(command: &mut Command) -> Result<()> {
    let shown = shown(command);
    let status = command
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("`{shown}` could not be started"))?;
    if status.success() {
        Ok(())
    } else {
        bail!("`{shown}` failed: {status}")
    }
}

/// Runs a command to its end and returns its output.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let shown = shown(command);
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("`{shown}` could not be started"))?;
    if !output.status.success() {
        bail!(
            "`{shown}` failed: {}\n{}{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Whether a program is on the `PATH`, or where Debian keeps programs for root.
pub(crate) fn exists(program: &str) -> bool {
    find(program).is_some()
}

pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|dir| dir.join(program))
        .find(|candidate| candidate.is_file())
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The command as a person would type it.
fn shown(command: &Command) -> String {
    std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| {
            let word = word.to_string_lossy();
            let plain = |c: char| c.is_alphanumeric() || "-_./=:,@+".contains(c);
            if !word.is_empty() && word.chars().all(plain) {
                word.into_owned()
            } else {
                format!("'{word}'")
            }
        })
        .collect::<Vec<_>>()
        .join(" ")
}

/// Tracked files and new ones that are not ignored, relative to the root.
pub(crate) fn known_files() -> Result<Vec<String>> {
    let listed = output(
        Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others"])
            .arg("--exclude-standard")
            .current_dir(workspace_root()),
    )?;
    let mut files: Vec<_> = listed
        .split('\0')
        .filter(|path| !path.is_empty())
        .map(str::to_owned)
        .collect();
    files.sort();
    files.dedup();
    Ok(files)
}
