//! `runc` and `crun`: one container for each run of `sh -c true`.
//!
//! In: nothing. Out: one run of either runtime. Both use the same bundle: a root directory of
//! busybox, and the configuration of `runc spec`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{BUSYBOX, CRUN, RUNC, succeed};
use crate::bench::clients::pipe::Pipe;
use crate::bench::measure::turns::Work;
use crate::run::{is_root, output};

/// With controllers in it, this is a second cgroup hierarchy beside those of version 1. crun
/// refuses such hosts.
const SECOND_HIERARCHY: &str = "/sys/fs/cgroup/unified/cgroup.controllers";

/// Starts crun for each line, in a mount namespace without the second hierarchy.
const SHELL: &str = r#"
mount -t tmpfs tmpfs /sys/fs/cgroup/unified || exit 1
while read -r container; do
    "$@" "$container" </dev/null >/dev/null 2>&1
    echo $?
done
"#;

pub(in super::super) struct Bundle {
    directory: TempDir,
}

impl Bundle {
    pub(in super::super) fn make() -> Result<Self> {
        ensure!(is_root(), "OCI runtimes are measured as root only");
        let directory = tempfile::tempdir()?;
        let programs = directory.path().join("rootfs/bin");
        fs::create_dir_all(&programs)?;
        fs::copy(BUSYBOX, programs.join("busybox"))
            .with_context(|| format!("`{BUSYBOX}` could not be copied"))?;
        for name in ["sh", "true"] {
            symlink("busybox", programs.join(name))?;
        }
        output(Command::new(RUNC).arg("spec").current_dir(directory.path()))?;
        let path = directory.path().join("config.json");
        fs::write(&path, configuration(&fs::read_to_string(&path)?)?)?;
        Ok(Self { directory })
    }

    pub(in super::super) fn runc(&self) -> Result<Work<'_>> {
        self.direct(RUNC)
    }

    pub(in super::super) fn crun(&self) -> Result<Work<'_>> {
        if is_hybrid() {
            self.through_shell(CRUN)
        } else {
            self.direct(CRUN)
        }
    }

    fn direct<'a>(&'a self, runtime: &'static str) -> Result<Work<'a>> {
        numbered(move |container| succeed(self.run(runtime).arg(container)))
    }

    fn through_shell(&self, runtime: &'static str) -> Result<Work<'_>> {
        let run = self.run(runtime);
        let mut shell = Pipe::start(
            Command::new("unshare")
                .args(["--mount", "/bin/sh", "-c", SHELL, "sh"])
                .arg(run.get_program())
                .args(run.get_args()),
        )?;
        numbered(move |container| {
            let status = shell.request(container)?;
            ensure!(status == "0", "`{runtime} run` ended with {status}");
            Ok(())
        })
    }

    /// `runtime run`, without the name of the container.
    fn run(&self, runtime: &str) -> Command {
        let directory = self.directory.path();
        let mut command = Command::new(runtime);
        command
            .arg("--root")
            .arg(state(directory, runtime))
            .args(["run", "--bundle"])
            .arg(directory);
        command
    }
}

/// What a reader must know about the times of crun here.
pub(in super::super) fn crun_note() -> &'static str {
    if is_hybrid() {
        "; crun refuses hosts with both cgroup versions, so a shell in a mount namespace that shows version 1 \
         alone starts it, and its time includes the fork of that shell"
    } else {
        ""
    }
}

/// One container for each turn, and one before the first turn.
fn numbered<'a>(mut run: impl FnMut(&str) -> Result<()> + 'a) -> Result<Work<'a>> {
    run("boxwood-bench-0")?;
    let mut number = 0_u32;
    Ok(Box::new(move || {
        number += 1;
        run(&format!("boxwood-bench-{number}"))
    }))
}

/// Each runtime has its own state, apart from that of the host.
fn state(directory: &Path, runtime: &str) -> PathBuf {
    let name = Path::new(runtime).file_name().unwrap_or_default();
    directory.join("state").join(name)
}

fn is_hybrid() -> bool {
    fs::read_to_string(SECOND_HIERARCHY).is_ok_and(|controllers| !controllers.trim().is_empty())
}

/// The configuration of `runc spec`, for `sh -c true` without a terminal.
fn configuration(spec: &str) -> Result<String> {
    let mut spec: Value = serde_json::from_str(spec).context("`runc spec` wrote no JSON")?;
    spec["process"]["terminal"] = json!(false);
    spec["process"]["args"] = json!(["/bin/sh", "-c", "true"]);
    Ok(spec.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_command_and_the_terminal_of_the_configuration_change() {
        let spec =
            r#"{"process":{"terminal":true,"args":["sh"],"cwd":"/"},"root":{"path":"rootfs"}}"#;
        let changed: Value = serde_json::from_str(&configuration(spec).unwrap()).unwrap();
        assert_eq!(
            changed,
            json!({
                "process": {"terminal": false, "args": ["/bin/sh", "-c", "true"], "cwd": "/"},
                "root": {"path": "rootfs"}
            })
        );
    }
}
