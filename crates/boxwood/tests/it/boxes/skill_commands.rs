//! `boxwood skill` with a real daemon, and skills in real boxes.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::command::{CommandResult, boxwood, run, run_with_input};
use crate::support::daemon::Daemon;

/// A directory on this machine with skills in it.
pub(crate) struct LocalDirectory(TempDir);

impl LocalDirectory {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary directory"))
    }

    pub(crate) fn path(&self, below: &str) -> PathBuf {
        self.0.path().join(below)
    }

    pub(crate) fn text(&self, below: &str) -> String {
        self.path(below).to_str().expect("UTF-8").to_owned()
    }

    pub(crate) fn file(&self, below: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(below);
        fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
        fs::write(&path, bytes).expect("written");
        path
    }

    pub(crate) fn program(&self, below: &str, text: &str) -> String {
        let path = self.file(below, text);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("mode");
        path.to_str().expect("UTF-8").to_owned()
    }

    /// A whole skill: words, a program, and bytes that are not text.
    pub(crate) fn skill(&self, below: &str) -> String {
        let name = below.rsplit('/').next().expect("a name");
        let entry = format!("---\nname: {name}\ndescription: The skill {name}\n---\n\nDo it.\n");
        self.file(&format!("{below}/SKILL.md"), entry);
        self.program(
            &format!("{below}/scripts/run.sh"),
            "#!/bin/sh\necho ran $1\n",
        );
        self.file(&format!("{below}/assets/all.bin"), all_bytes());
        self.text(below)
    }
}

fn all_bytes() -> Vec<u8> {
    (0..=255).cycle().take(100_000).collect()
}

fn json_of(output: CommandResult) -> Value {
    serde_json::from_str(&output.ok()).expect("JSON")
}

fn names(daemon: &Daemon) -> String {
    let mut names: Vec<_> = daemon
        .run(&["skill", "ls", "-q"])
        .ok()
        .lines()
        .map(str::to_owned)
        .collect();
    names.sort();
    names.join(" ")
}

#[test]
fn a_directory_becomes_a_skill_and_goes_again() {
    let (daemon, local) = (Daemon::start(), LocalDirectory::new());
    let directory = local.skill("pdf");
    let output = daemon.run(&["skill", "add", &directory]);
    assert_eq!(output.stderr, "", "a good skill has no warnings");
    assert_eq!(output.ok(), "pdf\n");

    let table = daemon.run(&["skill", "ls"]).ok();
    let lines: Vec<_> = table.lines().collect();
    assert_eq!(lines.len(), 2, "{table}");
    assert!(lines[0].starts_with("NAME"), "{table}");
    assert!(lines[1].starts_with("pdf"), "{table}");
    assert!(lines[1].ends_with("The skill pdf"), "{table}");

    let shown = daemon.run(&["skill", "show", "pdf"]).ok();
    assert!(shown.contains("The skill pdf"), "{shown}");
    assert!(shown.ends_with("\nDo it.\n"), "{shown}");
    let detail = json_of(daemon.run(&["skill", "show", "pdf", "-o", "json"]));
    assert_eq!(detail["instructions"], "Do it.\n");
    assert_eq!(detail["warnings"], json!([]));

    let files = daemon.run(&["skill", "files", "pdf"]).ok();
    insta::assert_snapshot!(files, @r"
    PATH       SIZE   KIND
    SKILL.md   53 B   file
    assets/    -      directory
    scripts/   -      directory
    ");
    let files = daemon.run(&["skill", "files", "pdf", "scripts"]).ok();
    assert!(files.contains("scripts/run.sh"), "{files}");
    assert!(files.contains("program"), "the mode came along: {files}");

    let bytes = daemon
        .command(&["skill", "cat", "pdf", "assets/all.bin"])
        .output()
        .expect("boxwood runs");
    assert!(bytes.status.success() && bytes.stdout == all_bytes());

    let again = daemon.run(&["skill", "add", &directory]);
    assert_eq!(again.code, Some(1), "{}", again.all());
    assert!(again.stderr.contains("already exists"), "{}", again.stderr);

    assert_eq!(daemon.run(&["skill", "rm", "pdf"]).ok(), "pdf\n");
    assert_eq!(names(&daemon), "");
    let gone = daemon.run(&["skill", "rm", "pdf"]);
    insta::assert_snapshot!(gone.all(), @r#"
    exit 1
    --- stdout
    --- stderr
    error: Skill "pdf" not found
    hint: `boxwood skill ls` shows the skills
    "#);
    daemon.run(&["skill", "rm", "-f", "pdf"]).ok();
}

#[test]
fn an_archive_goes_round() {
    let (daemon, local) = (Daemon::start(), LocalDirectory::new());
    daemon.run(&["skill", "add", &local.skill("pdf")]).ok();
    let file = local.text("out.zip");
    let output = json_of(daemon.run(&["skill", "export", "pdf", &file, "-o", "json"]));
    let length = fs::metadata(&file).expect("exported").len();
    assert_eq!(output, json!({"file": file, "bytes": length}));
    let piped = daemon
        .command(&["skill", "export", "pdf"])
        .output()
        .expect("boxwood runs");
    assert!(
        piped.stdout == fs::read(&file).expect("exported"),
        "the same either way"
    );

    daemon.run(&["skill", "rm", "pdf"]).ok();
    assert_eq!(daemon.run(&["skill", "add", &file]).ok(), "pdf\n");
    let command = daemon.command(&["skill", "add", "-", "--name", "second"]);
    assert_eq!(run_with_input(command, &piped.stdout).ok(), "second\n");
    assert_eq!(names(&daemon), "pdf second");
    for name in ["pdf", "second"] {
        let bytes = daemon
            .command(&["skill", "cat", name, "assets/all.bin"])
            .output()
            .expect("boxwood runs");
        assert!(bytes.stdout == all_bytes(), "{name}");
        let files = daemon.run(&["skill", "files", name, "scripts"]).ok();
        assert!(files.contains("program"), "{name}: {files}");
    }

    let broken = local.file("broken.zip", "this is no archive");
    let output = daemon.run(&["skill", "add", broken.to_str().expect("UTF-8")]);
    assert_eq!(output.code, Some(1), "{}", output.all());
    assert!(output.stderr.contains("valid .zip"), "{}", output.stderr);
}

#[test]
fn only_the_selected_skills_of_a_directory_are_installed() {
    let (daemon, local) = (Daemon::start(), LocalDirectory::new());
    for name in ["all/pdf", "all/office/csv", "all/office/xls"] {
        local.skill(name);
    }
    let all = local.text("all");
    let plan = daemon.run(&["skill", "add", &all, "--dry-run"]).ok();
    insta::assert_snapshot!(plan, @r"
    NAME   SUBDIR       WARNINGS   DESCRIPTION
    csv    office/csv   0          The skill csv
    xls    office/xls   0          The skill xls
    pdf    pdf          0          The skill pdf
    ");
    assert_eq!(names(&daemon), "", "a dry run installed a skill");

    let output = daemon.run(&["skill", "add", &all]);
    assert_eq!(output.code, Some(1), "{}", output.all());
    assert!(
        output.stderr.contains("--select SUBDIR"),
        "{}",
        output.stderr
    );
    let output = daemon.run(&["skill", "add", &all, "--select", "office/csv"]);
    assert_eq!(output.ok(), "csv\n");
    // All or nothing: one of them is there.
    let output = daemon.run(&["skill", "add", &all, "--all"]);
    assert_eq!(output.code, Some(1), "{}", output.all());
    assert_eq!(names(&daemon), "csv");
    daemon.run(&["skill", "rm", "csv"]).ok();
    daemon.run(&["skill", "add", &all, "--all"]).ok();
    assert_eq!(names(&daemon), "csv pdf xls");
}

#[test]
fn a_directory_without_a_skill_is_not_sent() {
    let (daemon, local) = (Daemon::start(), LocalDirectory::new());
    local.file("empty/readme", "x");
    let output = daemon.run(&["skill", "add", &local.text("empty")]);
    assert_eq!(output.code, Some(2), "{}", output.all());
    assert!(output.stderr.contains("no SKILL.md"), "{}", output.stderr);
    let output = daemon.run(&["skill", "add", &local.text("nowhere")]);
    assert_eq!(output.code, Some(1), "{}", output.all());
    assert!(output.stderr.contains("nowhere"), "{}", output.stderr);
}

/// The daemon's verb with an editor of the test's own.
fn edit(daemon: &Daemon, editor: &str, args: &[&str]) -> CommandResult {
    let output = daemon
        .command(args)
        .env_remove("VISUAL")
        .env("EDITOR", editor)
        .output();
    output.expect("boxwood runs").into()
}

#[test]
fn an_editor_changes_a_file() {
    let (daemon, local) = (Daemon::start(), LocalDirectory::new());
    daemon.run(&["skill", "add", &local.skill("pdf")]).ok();
    // With an argument, as people write it, and a name that ends as the file does.
    let editor = local.program(
        "editor",
        "#!/bin/sh\ncase \"$2\" in */SKILL.md) ;; *) exit 9;; esac\nsed -i \"s/Do it/$1/\" \"$2\"\n",
    );
    let args = ["skill", "edit", "pdf", "SKILL.md"];
    let output = edit(&daemon, &format!("{editor} Well-done"), &args);
    assert_eq!(output.ok(), "SKILL.md\n");
    let text = daemon.run(&["skill", "cat", "pdf", "SKILL.md"]).ok();
    assert!(text.ends_with("\nWell-done.\n"), "{text}");
    let detail = json_of(daemon.run(&["skill", "show", "pdf", "-o", "json"]));
    assert_eq!(detail["instructions"], "Well-done.\n", "seen at once");

    let output = edit(&daemon, "true", &args);
    assert_eq!(
        output.all(),
        "exit 0\n--- stdout\n--- stderr\nboxwood: nothing was changed\n"
    );
    let output = edit(&daemon, "echo lost >", &args);
    assert_eq!(output.code, Some(0), "{}", output.all());
    let output = edit(&daemon, "false", &args);
    assert_eq!(output.code, Some(1), "{}", output.all());
    assert!(
        output.stderr.contains("nothing was changed"),
        "{}",
        output.stderr
    );

    // A new file, with its directories.
    let output = edit(
        &daemon,
        "echo fresh >",
        &["skill", "edit", "pdf", "a/b.txt"],
    );
    assert_eq!(output.ok(), "a/b.txt\n");
    assert_eq!(
        daemon.run(&["skill", "cat", "pdf", "a/b.txt"]).ok(),
        "fresh\n"
    );
    let output = edit(&daemon, "true", &["skill", "edit", "nope", "SKILL.md"]);
    assert_eq!(output.code, Some(1), "{}", output.all());
    assert!(output.stderr.contains("not found"), "{}", output.stderr);
    let output = edit(&daemon, "echo x >", &["skill", "edit", "pdf", "../x"]);
    assert_eq!(output.code, Some(1), "{}", output.all());
}

#[test]
fn two_editors_do_not_undo_each_other() {
    let (daemon, local) = (Daemon::start(), LocalDirectory::new());
    daemon.run(&["skill", "add", &local.skill("pdf")]).ok();
    // While this editor is open, another client writes the same file.
    let editor = local.program(
        "editor",
        &format!(
            "#!/bin/sh\necho theirs | {boxwood} --url {url} skill edit pdf notes.txt - || exit 1\necho mine > \"$1\"\n",
            boxwood = env!("CARGO_BIN_EXE_boxwood"),
            url = daemon.url(),
        ),
    );
    let first = daemon.command(&["skill", "edit", "pdf", "notes.txt", "-"]);
    run_with_input(first, b"before\n").ok();
    let output = edit(&daemon, &editor, &["skill", "edit", "pdf", "notes.txt"]);
    assert_eq!(output.code, Some(1), "{}", output.all());
    assert!(
        output.stderr.contains("has changed since it was read"),
        "{}",
        output.stderr
    );
    assert_eq!(
        daemon.run(&["skill", "cat", "pdf", "notes.txt"]).ok(),
        "theirs\n"
    );
    let kept = output
        .stderr
        .lines()
        .find_map(|line| line.strip_prefix("hint: your text is in `"))
        .and_then(|rest| rest.strip_suffix('`'))
        .unwrap_or_else(|| panic!("{}", output.stderr));
    assert_eq!(fs::read_to_string(kept).expect("kept"), "mine\n");
    fs::remove_dir_all(Path::new(kept).parent().expect("a directory")).expect("removed");
}

#[test]
fn contents_come_from_a_file_or_from_stdin() {
    let (daemon, local) = (Daemon::start(), LocalDirectory::new());
    daemon.run(&["skill", "add", &local.skill("pdf")]).ok();
    let from = local.file("new.bin", all_bytes());
    let args = ["skill", "edit", "pdf", "data/new.bin"];
    let mut command = daemon.command(&args);
    command.arg(&from);
    let output = CommandResult::from(command.output().expect("boxwood runs"));
    assert_eq!(output.ok(), "data/new.bin\n");
    let command = daemon.command(&["skill", "edit", "pdf", "raw", "-", "-o", "json"]);
    let written = json_of(run_with_input(command, b"\xff\x00"));
    assert_eq!(written, json!({"path": "raw", "bytes_written": 2}));
    let raw = daemon
        .command(&["skill", "cat", "pdf", "raw"])
        .output()
        .expect("boxwood runs");
    assert_eq!(raw.stdout, b"\xff\x00");
}

#[test]
fn a_skill_is_checked_without_a_daemon() {
    let local = LocalDirectory::new();
    let good = local.skill("pdf");
    let output = run(&["skill", "validate", &good]);
    assert_eq!(
        output.all(),
        format!("exit 0\n--- stdout\n{good}: ok\n--- stderr\n")
    );

    local.file("Odd_Name/SKILL.md", "---\nname: other\nextra: 1\n---\n");
    let odd = local.text("Odd_Name");
    let output = run(&["skill", "validate", &odd]);
    assert_eq!(output.code, Some(0), "{}", output.all());
    for word in ["differs from its directory", "`description`", "`extra`"] {
        assert!(output.stdout.contains(word), "{word}: {}", output.stdout);
    }
    assert!(output.stdout.contains("warning: "), "{}", output.stdout);
    let output = run(&["skill", "validate", "--strict", &odd]);
    assert_eq!(output.code, Some(1), "{}", output.all());
    let verdict: Value =
        serde_json::from_str(&run(&["skill", "validate", &odd, "-o", "json"]).ok()).expect("JSON");
    assert_eq!(verdict[0]["valid"], true);
    let codes = verdict[0]["warnings"].to_string();
    assert!(codes.contains("name_is_not_directory"), "{codes}");

    local.file("broken/SKILL.md", "---\nname: [\n---\n");
    local.file("none/readme", "x");
    for bad in ["broken", "none"] {
        let output = run(&["skill", "validate", &local.text(bad)]);
        assert_eq!(output.code, Some(1), "{}", output.all());
        assert!(output.stdout.contains("error: "), "{}", output.all());
    }
    let output = run(&["skill", "validate", &local.text("nowhere")]);
    assert_eq!(output.code, Some(1), "{}", output.all());
    assert!(output.stderr.contains("nowhere"), "{}", output.stderr);
}

#[test]
fn archives_and_skills_of_the_store_are_checked_as_well() {
    let (daemon, local) = (Daemon::start(), LocalDirectory::new());
    daemon.run(&["skill", "add", &local.skill("pdf")]).ok();
    assert_eq!(daemon.run(&["skill", "validate", "pdf"]).ok(), "pdf: ok\n");
    let file = local.text("pdf.zip");
    daemon.run(&["skill", "export", "pdf", &file]).ok();
    assert_eq!(
        run(&["skill", "validate", &file]).ok(),
        format!("{file}: ok\n")
    );
    let broken = local.file("x.zip", "no archive");
    let output = run(&["skill", "validate", broken.to_str().expect("UTF-8")]);
    assert_eq!(output.code, Some(1), "{}", output.all());
    let output = daemon.run(&["skill", "validate", "nope"]);
    assert_eq!(output.code, Some(1), "{}", output.all());
}

#[test]
fn escape_sequences_in_skills_do_not_reach_the_terminal() {
    let (daemon, local) = (Daemon::start(), LocalDirectory::new());
    let text = "---\nname: pdf\ndescription: \"a\\e[2Jb\"\n---\n\n\u{1b}]0;owned\u{7}\tx\n";
    local.file("pdf/SKILL.md", text);
    let output = daemon.run(&["skill", "add", &local.text("pdf")]);
    assert_eq!(output.code, Some(0), "{}", output.all());
    for args in [["skill", "ls", "-q"], ["skill", "show", "pdf"]] {
        let output = daemon.run(&args);
        assert!(!output.stdout.contains('\u{1b}'), "{}", output.all());
    }
    let table = daemon.run(&["skill", "ls"]).ok();
    assert!(table.contains("\\u{1b}[2J"), "{table}");
}

#[test]
fn a_missing_daemon_is_reported_by_skill_ls() {
    let output = boxwood()
        .args(["--url", "http://127.0.0.1:1", "skill", "ls"])
        .output()
        .expect("boxwood runs");
    let output = CommandResult::from(output);
    assert_eq!(output.code, Some(1), "{}", output.all());
    assert!(
        output.stderr.starts_with("error: no daemon"),
        "{}",
        output.stderr
    );
}
