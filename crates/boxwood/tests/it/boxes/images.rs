//! Images, from a directory or an archive to a box that runs from them.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::support::command::{CommandResult, boxwood, run, run_with_input};
use crate::support::daemon::Daemon;

/// A root file system with busybox and a mark in it.
struct Rootfs {
    temp: tempfile::TempDir,
}

impl Rootfs {
    fn new(mark: &str) -> Self {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let root = temp.path().join("rootfs");
        for directory in ["bin", "etc", "tmp", "proc", "dev", "home", "workspace"] {
            fs::create_dir_all(root.join(directory)).expect("made");
        }
        fs::copy("/bin/busybox", root.join("bin/busybox"))
            .expect("the test needs `busybox` (apt install busybox-static)");
        fs::set_permissions(root.join("bin/busybox"), PermissionsExt::from_mode(0o755))
            .expect("set");
        for tool in ["sh", "cat", "ls", "sleep", "stat", "readlink"] {
            symlink("busybox", root.join("bin").join(tool)).expect("linked");
        }
        fs::hard_link(root.join("bin/busybox"), root.join("bin/echo")).expect("linked");
        fs::write(root.join("etc/mark"), format!("{mark}\n")).expect("written");
        // An archive of a private directory is still readable for all users in the box.
        fs::set_permissions(&root, PermissionsExt::from_mode(0o700)).expect("set");
        Self { temp }
    }

    fn path(&self) -> PathBuf {
        self.temp.path().join("rootfs")
    }

    fn text(&self) -> String {
        self.path().to_str().expect("UTF-8").to_owned()
    }

    fn tar(&self, gzip: &str) -> PathBuf {
        let archive = self.temp.path().join("archive.tar");
        let done = Command::new("tar")
            .arg(format!("-c{gzip}f"))
            .arg(&archive)
            .arg("-C")
            .arg(self.path())
            .arg(".")
            .status();
        assert!(done.expect("tar runs").success());
        archive
    }
}

fn state_dir(daemon: &Daemon) -> PathBuf {
    daemon.directory().join("state")
}

fn mark(daemon: &Daemon, session: &str, image: &str) -> CommandResult {
    daemon.run(&["exec", session, "--image", image, "--", "cat", "/etc/mark"])
}

#[test]
fn a_directory_becomes_an_image_that_boxes_run_from() {
    let (daemon, rootfs) = (Daemon::start(), Rootfs::new("one"));
    let output = daemon.run(&["image", "import", &rootfs.text(), "tools/box"]);
    assert_eq!(output.ok(), "tools/box:latest\n");
    // Links and modes are kept, and no files of the host are visible.
    let script = "cat /etc/mark; readlink /bin/sh; stat -c %h /bin/echo; \
                  stat -c %a / /bin/busybox; ls /usr/bin 2>/dev/null; true";
    let args = [
        "exec",
        "s",
        "--image",
        "tools/box",
        "--",
        "sh",
        "-c",
        script,
    ];
    assert_eq!(daemon.run(&args).ok(), "one\nbusybox\n2\n755\n755\n");
    // With its tag written out it is the same image, and so the same session.
    assert_eq!(mark(&daemon, "t", "tools/box:latest").ok(), "one\n");
    let listed: Value =
        serde_json::from_str(&daemon.run(&["image", "ls", "-o", "json"]).ok()).expect("JSON");
    let image = &listed["images"][0];
    assert_eq!(image["name"], "tools/box:latest");
    assert_eq!(
        (&image["backend"], &image["source"]),
        (&"native".into(), &"store".into())
    );
    // A file with two hard links is stored once.
    let busybox = fs::metadata("/bin/busybox").expect("there").len();
    let size = image["size_bytes"].as_u64().expect("a size");
    assert!(size >= busybox && size < 2 * busybox, "{size}");
    assert_eq!(
        daemon.run(&["image", "ls", "-q"]).ok(),
        "tools/box:latest\n"
    );
}

#[test]
fn archives_come_from_files_and_from_stdin() {
    let (daemon, rootfs) = (Daemon::start(), Rootfs::new("tarred"));
    let plain = rootfs.tar("");
    let output = daemon.run(&["image", "import", plain.to_str().expect("UTF-8")]);
    assert_eq!(output.ok(), "archive:latest\n");
    assert_eq!(mark(&daemon, "plain", "archive").ok(), "tarred\n");
    let packed = fs::read(rootfs.tar("z")).expect("read");
    let mut command = boxwood();
    command.args(["--url", daemon.url(), "image", "import", "-", "packed:1"]);
    assert_eq!(run_with_input(command, &packed).ok(), "packed:1\n");
    assert_eq!(mark(&daemon, "packed", "packed:1").ok(), "tarred\n");
}

#[test]
fn an_image_in_use_stays_and_a_replaced_one_lives_on_in_its_boxes() {
    let (daemon, first, second) = (Daemon::start(), Rootfs::new("one"), Rootfs::new("two"));
    daemon
        .run(&["image", "import", &first.text(), "tools"])
        .ok();
    assert_eq!(mark(&daemon, "old", "tools").ok(), "one\n");
    let output = daemon.run(&["image", "rm", "tools"]);
    assert_eq!(output.code, Some(1), "{}", output.all());
    assert!(output.stderr.contains("in use"), "{}", output.stderr);
    daemon
        .run(&["image", "import", &second.text(), "tools"])
        .ok();
    assert_eq!(mark(&daemon, "new", "tools").ok(), "two\n");
    assert_eq!(mark(&daemon, "old", "tools").ok(), "one\n");
    daemon.run(&["rm", "--all"]).ok();
    assert_eq!(daemon.run(&["image", "rm", "tools"]).ok(), "tools\n");
    assert_eq!(daemon.run(&["image", "ls", "-q"]).ok(), "");
    let left: Vec<_> = fs::read_dir(state_dir(&daemon).join("images"))
        .expect("there")
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_missing_image_is_reported_with_the_import_command() {
    let daemon = Daemon::start();
    let output = mark(&daemon, "s", "tools");
    assert_eq!(output.code, Some(125), "{}", output.all());
    assert!(
        output.stderr.contains("image `tools` was not found"),
        "{}",
        output.stderr
    );
    assert!(
        output.stderr.contains("boxwood image import"),
        "{}",
        output.stderr
    );
    let output = daemon.run(&["image", "rm", "tools"]);
    assert_eq!(output.code, Some(1), "{}", output.all());
    assert_eq!(daemon.run(&["image", "rm", "-f", "tools"]).ok(), "");
    let output = daemon.run(&["image", "pull", "tools", "--backend", "native"]);
    assert_eq!(output.code, Some(1), "{}", output.all());
    assert!(output.stderr.contains("cannot pull"), "{}", output.stderr);
    assert!(
        output.stderr.contains("boxwood image import TAR tools"),
        "{}",
        output.stderr
    );
}

#[test]
fn invalid_images_are_refused_and_leave_no_files() {
    let (daemon, rootfs) = (Daemon::start(), Rootfs::new("x"));
    let refuse = |args: &[&str], code: i32, because: &str| {
        let output = daemon.run(args);
        assert_eq!(output.code, Some(code), "{args:?}: {}", output.all());
        assert!(
            output.stderr.contains(because),
            "{args:?}: {}",
            output.stderr
        );
    };
    let text = rootfs.text();
    let mark = format!("{text}/etc/mark");
    refuse(
        &["image", "import", &text, "--", "-x"],
        2,
        "is not a valid image name",
    );
    refuse(&["image", "import", &text, "Up"], 2, "lower-case");
    refuse(
        &["image", "import", &text, "a b"],
        2,
        "is not a valid image name",
    );
    refuse(&["image", "import", "-"], 2, "is not a valid image name");
    refuse(
        &["image", "import", "/nowhere", "a"],
        1,
        "cannot read `/nowhere`",
    );
    refuse(&["image", "import", &mark, "a"], 1, "not a tar archive");
    refuse(
        &["image", "import", &text, "host"],
        1,
        "own system directories",
    );
    refuse(
        &["image", "import", &text, "a", "--backend", "nope"],
        1,
        "nope",
    );
    let left = fs::read_dir(state_dir(&daemon).join("images"));
    assert_eq!(left.map_or(0, Iterator::count), 0);
}

#[test]
fn a_command_without_a_daemon_sees_the_same_images() {
    let (daemon, rootfs) = (Daemon::start(), Rootfs::new("alone"));
    daemon
        .run(&["image", "import", &rootfs.text(), "tools"])
        .ok();
    let state = state_dir(&daemon);
    let in_state = |state: &Path| {
        let mut command = boxwood();
        command.args(["run", "--image", "tools", "--", "cat", "/etc/mark"]);
        command
            .env("BOXWOOD_STATE_DIR", state)
            .output()
            .expect("boxwood runs")
            .into()
    };
    let output: CommandResult = in_state(&state);
    assert_eq!(output.ok(), "alone\n");
    let elsewhere = tempfile::tempdir().expect("a temporary directory");
    let output: CommandResult = in_state(elsewhere.path());
    assert_eq!(output.code, Some(125), "{}", output.all());
}

#[test]
fn images_outlive_the_daemon_and_a_killed_imports_rest_does_not() {
    let (mut daemon, rootfs) = (Daemon::start(), Rootfs::new("kept"));
    daemon
        .run(&["image", "import", &rootfs.text(), "tools"])
        .ok();
    let directory = daemon.kill();
    let half = directory.path().join("state/images/.new-1-0/rootfs");
    fs::create_dir_all(&half).expect("made");
    let daemon = Daemon::start_in(directory);
    assert_eq!(mark(&daemon, "s", "tools").ok(), "kept\n");
    for _ in 0..200 {
        if !half.exists() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(25));
    }
    assert!(!half.exists());
}

#[test]
fn owners_are_kept_where_the_daemon_is_root() {
    let (daemon, rootfs) = (Daemon::start(), Rootfs::new("owned"));
    let is_root = fs::metadata("/proc/self").expect("there").uid() == 0;
    let owner = if is_root { 1234 } else { 1000 };
    if is_root {
        let file = rootfs.path().join("etc/mark");
        std::os::unix::fs::chown(&file, Some(owner), Some(owner)).expect("changed");
    }
    daemon
        .run(&["image", "import", &rootfs.text(), "tools"])
        .ok();
    let args = [
        "exec",
        "s",
        "--image",
        "tools",
        "--",
        "stat",
        "-c",
        "%u",
        "/etc/mark",
    ];
    assert_eq!(daemon.run(&args).ok(), format!("{owner}\n"));
}

#[test]
fn help_has_examples_for_every_action() {
    for action in [&[][..], &["ls"], &["pull"], &["import"], &["rm"]] {
        let args = [&["image"], action, &["--help"]].concat();
        let help = run(&args).ok();
        assert!(
            help.contains("Examples:\n") && help.contains("--backend"),
            "{help}"
        );
    }
}
