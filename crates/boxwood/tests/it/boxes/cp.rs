//! `boxwood cp` with a real box on the other side.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use crate::support::daemon::Daemon;

#[test]
fn a_file_goes_in_and_comes_back() {
    let daemon = Daemon::start();
    daemon.run(&["create", "s"]).ok();
    let here = tempfile::tempdir().expect("a temporary directory");
    let bytes: Vec<u8> = (0..700_000_u32).flat_map(u32::to_le_bytes).collect();
    let source = here.path().join("data.bin");
    fs::write(&source, &bytes).expect("written");
    fs::set_permissions(&source, fs::Permissions::from_mode(0o4755)).expect("mode");
    let path = source.to_str().expect("UTF-8");

    daemon.run(&["cp", path, "s:/workspace/"]).ok();
    let mode = daemon
        .run(&["exec", "s", "--", "stat", "-c", "%a %s", "data.bin"])
        .ok();
    assert_eq!(mode, "755 2800000\n", "setuid must not travel");

    let back = here.path().join("back.bin");
    daemon
        .run(&["cp", "s:/workspace/data.bin", back.to_str().expect("UTF-8")])
        .ok();
    assert!(
        fs::read(&back).expect("copied") == bytes,
        "the bytes differ"
    );
    let mode = fs::metadata(&back).expect("copied").permissions().mode();
    assert_eq!(mode & 0o7777, 0o755);
}

#[test]
fn directories_are_copied_whole_and_links_are_left_out() {
    let daemon = Daemon::start();
    daemon.run(&["create", "s"]).ok();
    let here = tempfile::tempdir().expect("a temporary directory");
    let tree = here.path().join("tree");
    fs::create_dir_all(tree.join("deep/er")).expect("directories");
    fs::write(tree.join("a"), "1").expect("written");
    fs::write(tree.join("deep/er/b c"), "2").expect("written");
    symlink("/etc/passwd", tree.join("link")).expect("link");
    let source = tree.to_str().expect("UTF-8");

    let output = daemon.run(&["cp", source, "s:/workspace"]);
    assert_eq!(output.code, Some(0), "{}", output.all());
    assert!(output.stderr.contains("skipped"), "{}", output.stderr);
    let found = daemon
        .run(&["exec", "s", "--", "sh", "-c", "find tree | sort"])
        .ok();
    assert_eq!(
        found,
        "tree\ntree/a\ntree/deep\ntree/deep/er\ntree/deep/er/b c\n"
    );

    // What the box made of it comes back the same way.
    let script = "ln -s /etc/passwd tree/evil; echo 3 > tree/new";
    daemon.run(&["exec", "s", "--", "sh", "-c", script]).ok();
    let target = here.path().join("copy");
    let output = daemon.run(&[
        "cp",
        "s:/workspace/tree",
        target.to_str().expect("UTF-8"),
        "-o",
        "json",
    ]);
    assert!(output.stderr.contains("skipped"), "{}", output.stderr);
    let copied: serde_json::Value = serde_json::from_str(&output.ok()).expect("JSON");
    insta::assert_json_snapshot!(copied, @r#"
    {
      "bytes": 4,
      "files": 3,
      "skipped": 1
    }
    "#);
    assert!(fs::symlink_metadata(target.join("evil")).is_err());
    assert_eq!(
        fs::read_to_string(target.join("deep/er/b c")).expect("copied"),
        "2"
    );
}

#[test]
fn an_existing_link_is_replaced_and_not_followed() {
    let daemon = Daemon::start();
    daemon
        .run(&["exec", "s", "--", "sh", "-c", "echo theirs > f"])
        .ok();
    let here = tempfile::tempdir().expect("a temporary directory");
    let precious = here.path().join("precious");
    fs::write(&precious, "ours").expect("written");
    let target = here.path().join("f");
    symlink(&precious, &target).expect("link");
    daemon
        .run(&["cp", "s:/workspace/f", target.to_str().expect("UTF-8")])
        .ok();
    assert_eq!(fs::read_to_string(&precious).expect("kept"), "ours");
    assert_eq!(fs::read_to_string(&target).expect("copied"), "theirs\n");
}

#[test]
fn missing_files_are_reported_by_name() {
    let daemon = Daemon::start();
    daemon.run(&["create", "s"]).ok();
    let output = daemon.run(&["cp", "s:/workspace/nope", "/tmp"]);
    assert_eq!(output.code, Some(1), "{}", output.all());
    assert!(
        output.stderr.contains("/workspace/nope"),
        "{}",
        output.stderr
    );
    let output = daemon.run(&["cp", "/nonexistent/file", "s:/workspace"]);
    assert_eq!(output.code, Some(1), "{}", output.all());
    assert!(
        output.stderr.contains("/nonexistent/file"),
        "{}",
        output.stderr
    );
}
