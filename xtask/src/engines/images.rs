//! The files of the test images, made once and kept below `target`.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use crate::run::{check, output, target_dir};

/// Incremented when the contents change, so that archives are built again.
const RECIPE: &str = "1: debootstrap minbase bookworm python3 python3-pip ca-certificates\n";
const SUITE: &str = "bookworm";
const INCLUDE: &str = "--include=python3,python3-pip,ca-certificates";

/// Device nodes cannot be unpacked by an ordinary user, and engines bring their own; the rest is
/// what a package manager keeps for itself.
const LEFT_OUT: [&str; 5] = [
    "./dev/*",
    "./proc/*",
    "./sys/*",
    "./var/cache/apt/archives/*.deb",
    "./var/lib/apt/lists/*",
];

/// The directory of files that are kept between runs.
pub(super) fn cache() -> PathBuf {
    target_dir().join("engines")
}

pub(super) fn debian_tar() -> PathBuf {
    cache().join("rootfs.tar")
}

pub(super) fn small_tar() -> PathBuf {
    cache().join("busybox.tar")
}

/// Makes both archives unless an earlier run did.
pub(super) fn ensure() -> Result<()> {
    let _lock = lock()?;
    let small = small_tar();
    if !small.is_file() {
        let making = cache().join("busybox.tar.making");
        busybox_tar(&making, &[])?;
        fs::rename(&making, &small)?;
    }
    let marker = cache().join("rootfs.recipe");
    let debian = debian_tar();
    if debian.is_file() && fs::read_to_string(&marker).is_ok_and(|recipe| recipe == RECIPE) {
        return Ok(());
    }
    make_debian(&debian)?;
    // Last, so that an incomplete archive is made again.
    fs::write(&marker, RECIPE)?;
    Ok(())
}

/// One run at a time makes what all of them use. Held until the file is dropped.
pub(super) fn lock() -> Result<File> {
    fs::create_dir_all(cache())?;
    let path = cache().join("lock");
    let file = File::create(&path)
        .with_context(|| format!("`{}` could not be created", path.display()))?;
    file.lock()
        .with_context(|| format!("`{}` could not be locked", path.display()))?;
    Ok(file)
}

fn make_debian(tar: &Path) -> Result<()> {
    println!("making a Debian root with debootstrap (once; some minutes)");
    let started = Instant::now();
    let root = cache().join("rootfs.making");
    remove_if_there(&root)?;
    let log = cache().join("debootstrap.log");
    let log_file = File::create(&log)?;
    // In namespaces of its own: what it mounts and starts inside the new root ends with it, and
    // tests that count mounts of the host do not see it.
    let status = Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "unshare"])
        .args(["--mount", "--pid", "--fork", "--kill-child"])
        .args(["debootstrap", "--variant=minbase", INCLUDE, SUITE])
        .arg(&root)
        .stdin(Stdio::null())
        .stdout(log_file.try_clone()?)
        .stderr(log_file)
        .status()
        .context("`debootstrap` could not be started")?;
    if !status.success() {
        bail!(
            "`debootstrap` failed: {status}\n{}\nhint: `{}` has the rest",
            super::daemon::last_lines(&log, 10),
            log.display()
        );
    }
    let making = cache().join("rootfs.tar.making");
    pack(&root, &making)?;
    fs::rename(&making, tar)?;
    fs::remove_dir_all(&root)?;
    println!("made in {} s", started.elapsed().as_secs());
    Ok(())
}

/// An archive of busybox, a link for each of its programs, and these further directories.
pub(crate) fn busybox_tar(tar: &Path, directories: &[&str]) -> Result<()> {
    let busybox = Path::new("/bin/busybox");
    ensure!(
        busybox.is_file(),
        "`/bin/busybox` is missing\nhint: apt-get install busybox-static"
    );
    let root = tar.with_extension("root");
    remove_if_there(&root)?;
    for directory in ["bin", "etc", "proc", "sys", "dev", "tmp"]
        .iter()
        .chain(directories)
    {
        fs::create_dir_all(root.join(directory))?;
    }
    fs::set_permissions(root.join("tmp"), fs::Permissions::from_mode(0o1777))?;
    fs::write(
        root.join("etc/passwd"),
        "root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n",
    )?;
    fs::write(root.join("etc/group"), "root:x:0:\nnogroup:x:65534:\n")?;
    fs::copy(busybox, root.join("bin/busybox"))?;
    for applet in output(Command::new(busybox).arg("--list"))?.lines() {
        if applet != "busybox" {
            symlink("busybox", root.join("bin").join(applet))?;
        }
    }
    pack(&root, tar)?;
    fs::remove_dir_all(&root)?;
    Ok(())
}

fn pack(root: &Path, tar: &Path) -> Result<()> {
    check(
        Command::new("tar")
            .arg("--numeric-owner")
            .args(LEFT_OUT.map(|pattern| format!("--exclude={pattern}")))
            .arg("-C")
            .arg(root)
            .arg("-cf")
            .arg(tar)
            .arg("."),
    )
}

fn remove_if_there(root: &Path) -> Result<()> {
    if root.exists() {
        fs::remove_dir_all(root)
            .with_context(|| format!("`{}` could not be removed", root.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busybox_archive_has_a_shell_and_no_devices() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let tar = directory.path().join("small.tar");
        busybox_tar(&tar, &["workspace"]).expect("busybox is packed");
        let listed = output(Command::new("tar").arg("-tf").arg(&tar)).expect("tar lists");
        for wanted in ["./bin/sh", "./bin/true", "./workspace/", "./dev/"] {
            assert!(listed.lines().any(|line| line == wanted), "no {wanted}");
        }
        assert!(!listed.contains("./dev/null"));
        assert!(!directory.path().join("small.root").exists());
    }
}
