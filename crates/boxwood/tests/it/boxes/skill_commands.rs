//! `boxwood skill` with a real daemon, and skills in real boxes.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::command::{Said, boxwood, run, run_with_input};
use crate::support::daemon::Daemon;

/// A directory on this machine with skills in it.
pub(crate) struct Here(TempDir);

impl Here {
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

fn json_of(said: Said) -> Value {
    serde_json::from_str(&said.ok()).expect("JSON")
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
    let (daemon, here) = (Daemon::start(), Here::new());
    let directory = here.skill("pdf");
    let said = daemon.run(&["skill", "add", &directory]);
    assert_eq!(said.stderr, "", "a good skill has no warnings");
    assert_eq!(said.ok(), "pdf\n");

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
    let (daemon, here) = (Daemon::start(), Here::new());
    daemon.run(&["skill", "add", &here.skill("pdf")]).ok();
    let file = here.text("out.zip");
    let said = json_of(daemon.run(&["skill", "export", "pdf", &file, "-o", "json"]));
    let length = fs::metadata(&file).expect("exported").len();
    assert_eq!(said, json!({"file": file, "bytes": length}));
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

    let broken = here.file("broken.zip", "this is no archive");
    let said = daemon.run(&["skill", "add", broken.to_str().expect("UTF-8")]);
    assert_eq!(said.code, Some(1), "{}", said.all());
    assert!(said.stderr.contains("valid .zip"), "{}", said.stderr);
}

#[test]
fn of_several_skills_those_that_are_meant_are_taken() {
    let (daemon, here) = (Daemon::start(), Here::new());
    for name in ["all/pdf", "all/office/csv", "all/office/xls"] {
        here.skill(name);
    }
    let all = here.text("all");
    let plan = daemon.run(&["skill", "add", &all, "--dry-run"]).ok();
    insta::assert_snapshot!(plan, @r"
    NAME   SUBDIR       WARNINGS   DESCRIPTION
    csv    office/csv   0          The skill csv
    xls    office/xls   0          The skill xls
    pdf    pdf          0          The skill pdf
    ");
    assert_eq!(names(&daemon), "", "nothing is installed by looking");

    let said = daemon.run(&["skill", "add", &all]);
    assert_eq!(said.code, Some(1), "{}", said.all());
    assert!(said.stderr.contains("--select SUBDIR"), "{}", said.stderr);
    let said = daemon.run(&["skill", "add", &all, "--select", "office/csv"]);
    assert_eq!(said.ok(), "csv\n");
    // All or nothing: one of them is there.
    let said = daemon.run(&["skill", "add", &all, "--all"]);
    assert_eq!(said.code, Some(1), "{}", said.all());
    assert_eq!(names(&daemon), "csv");
    daemon.run(&["skill", "rm", "csv"]).ok();
    daemon.run(&["skill", "add", &all, "--all"]).ok();
    assert_eq!(names(&daemon), "csv pdf xls");
}

#[test]
fn what_is_no_skill_is_not_sent() {
    let (daemon, here) = (Daemon::start(), Here::new());
    here.file("empty/readme", "x");
    let said = daemon.run(&["skill", "add", &here.text("empty")]);
    assert_eq!(said.code, Some(2), "{}", said.all());
    assert!(said.stderr.contains("no SKILL.md"), "{}", said.stderr);
    let said = daemon.run(&["skill", "add", &here.text("nowhere")]);
    assert_eq!(said.code, Some(1), "{}", said.all());
    assert!(said.stderr.contains("nowhere"), "{}", said.stderr);
}

/// The daemon's verb with an editor of the test's own.
fn edit(daemon: &Daemon, editor: &str, words: &[&str]) -> Said {
    let output = daemon
        .command(words)
        .env_remove("VISUAL")
        .env("EDITOR", editor)
        .output();
    output.expect("boxwood runs").into()
}

#[test]
fn an_editor_changes_a_file() {
    let (daemon, here) = (Daemon::start(), Here::new());
    daemon.run(&["skill", "add", &here.skill("pdf")]).ok();
    // With an argument, as people write it, and a name that ends as the file does.
    let editor = here.program(
        "editor",
        "#!/bin/sh\ncase \"$2\" in */SKILL.md) ;; *) exit 9;; esac\nsed -i \"s/Do it/$1/\" \"$2\"\n",
    );
    let words = ["skill", "edit", "pdf", "SKILL.md"];
    let said = edit(&daemon, &format!("{editor} Well-done"), &words);
    assert_eq!(said.ok(), "SKILL.md\n");
    let text = daemon.run(&["skill", "cat", "pdf", "SKILL.md"]).ok();
    assert!(text.ends_with("\nWell-done.\n"), "{text}");
    let detail = json_of(daemon.run(&["skill", "show", "pdf", "-o", "json"]));
    assert_eq!(detail["instructions"], "Well-done.\n", "seen at once");

    let said = edit(&daemon, "true", &words);
    assert_eq!(
        said.all(),
        "exit 0\n--- stdout\n--- stderr\nboxwood: nothing was changed\n"
    );
    let said = edit(&daemon, "echo lost >", &words);
    assert_eq!(said.code, Some(0), "{}", said.all());
    let said = edit(&daemon, "false", &words);
    assert_eq!(said.code, Some(1), "{}", said.all());
    assert!(
        said.stderr.contains("nothing was changed"),
        "{}",
        said.stderr
    );

    // A new file, with its directories.
    let said = edit(
        &daemon,
        "echo fresh >",
        &["skill", "edit", "pdf", "a/b.txt"],
    );
    assert_eq!(said.ok(), "a/b.txt\n");
    assert_eq!(
        daemon.run(&["skill", "cat", "pdf", "a/b.txt"]).ok(),
        "fresh\n"
    );
    let said = edit(&daemon, "true", &["skill", "edit", "nope", "SKILL.md"]);
    assert_eq!(said.code, Some(1), "{}", said.all());
    assert!(said.stderr.contains("not found"), "{}", said.stderr);
    let said = edit(&daemon, "echo x >", &["skill", "edit", "pdf", "../x"]);
    assert_eq!(said.code, Some(1), "{}", said.all());
}

#[test]
fn two_editors_do_not_undo_each_other() {
    let (daemon, here) = (Daemon::start(), Here::new());
    daemon.run(&["skill", "add", &here.skill("pdf")]).ok();
    // While this editor is open, another client writes the same file.
    let editor = here.program(
        "editor",
        &format!(
            "#!/bin/sh\necho theirs | {boxwood} --url {url} skill edit pdf notes.txt - || exit 1\necho mine > \"$1\"\n",
            boxwood = env!("CARGO_BIN_EXE_boxwood"),
            url = daemon.url(),
        ),
    );
    let first = daemon.command(&["skill", "edit", "pdf", "notes.txt", "-"]);
    run_with_input(first, b"before\n").ok();
    let said = edit(&daemon, &editor, &["skill", "edit", "pdf", "notes.txt"]);
    assert_eq!(said.code, Some(1), "{}", said.all());
    assert!(
        said.stderr.contains("has changed since it was read"),
        "{}",
        said.stderr
    );
    assert_eq!(
        daemon.run(&["skill", "cat", "pdf", "notes.txt"]).ok(),
        "theirs\n"
    );
    let kept = said
        .stderr
        .lines()
        .find_map(|line| line.strip_prefix("hint: your text is in `"))
        .and_then(|rest| rest.strip_suffix('`'))
        .unwrap_or_else(|| panic!("{}", said.stderr));
    assert_eq!(fs::read_to_string(kept).expect("kept"), "mine\n");
    fs::remove_dir_all(Path::new(kept).parent().expect("a directory")).expect("removed");
}

#[test]
fn contents_come_from_a_file_or_from_stdin() {
    let (daemon, here) = (Daemon::start(), Here::new());
    daemon.run(&["skill", "add", &here.skill("pdf")]).ok();
    let from = here.file("new.bin", all_bytes());
    let words = ["skill", "edit", "pdf", "data/new.bin"];
    let mut command = daemon.command(&words);
    command.arg(&from);
    let said = Said::from(command.output().expect("boxwood runs"));
    assert_eq!(said.ok(), "data/new.bin\n");
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
    let here = Here::new();
    let good = here.skill("pdf");
    let said = run(&["skill", "validate", &good]);
    assert_eq!(
        said.all(),
        format!("exit 0\n--- stdout\n{good}: ok\n--- stderr\n")
    );

    here.file("Odd_Name/SKILL.md", "---\nname: other\nextra: 1\n---\n");
    let odd = here.text("Odd_Name");
    let said = run(&["skill", "validate", &odd]);
    assert_eq!(said.code, Some(0), "{}", said.all());
    for word in ["differs from its directory", "`description`", "`extra`"] {
        assert!(said.stdout.contains(word), "{word}: {}", said.stdout);
    }
    assert!(said.stdout.contains("warning: "), "{}", said.stdout);
    let said = run(&["skill", "validate", "--strict", &odd]);
    assert_eq!(said.code, Some(1), "{}", said.all());
    let verdict: Value =
        serde_json::from_str(&run(&["skill", "validate", &odd, "-o", "json"]).ok()).expect("JSON");
    assert_eq!(verdict[0]["valid"], true);
    let codes = verdict[0]["warnings"].to_string();
    assert!(codes.contains("name_is_not_directory"), "{codes}");

    here.file("broken/SKILL.md", "---\nname: [\n---\n");
    here.file("none/readme", "x");
    for bad in ["broken", "none"] {
        let said = run(&["skill", "validate", &here.text(bad)]);
        assert_eq!(said.code, Some(1), "{}", said.all());
        assert!(said.stdout.contains("error: "), "{}", said.all());
    }
    let said = run(&["skill", "validate", &here.text("nowhere")]);
    assert_eq!(said.code, Some(1), "{}", said.all());
    assert!(said.stderr.contains("nowhere"), "{}", said.stderr);
}

#[test]
fn archives_and_skills_of_the_store_are_checked_as_well() {
    let (daemon, here) = (Daemon::start(), Here::new());
    daemon.run(&["skill", "add", &here.skill("pdf")]).ok();
    assert_eq!(daemon.run(&["skill", "validate", "pdf"]).ok(), "pdf: ok\n");
    let file = here.text("pdf.zip");
    daemon.run(&["skill", "export", "pdf", &file]).ok();
    assert_eq!(
        run(&["skill", "validate", &file]).ok(),
        format!("{file}: ok\n")
    );
    let broken = here.file("x.zip", "no archive");
    let said = run(&["skill", "validate", broken.to_str().expect("UTF-8")]);
    assert_eq!(said.code, Some(1), "{}", said.all());
    let said = daemon.run(&["skill", "validate", "nope"]);
    assert_eq!(said.code, Some(1), "{}", said.all());
}

#[test]
fn escape_sequences_in_skills_do_not_reach_the_terminal() {
    let (daemon, here) = (Daemon::start(), Here::new());
    let text = "---\nname: pdf\ndescription: \"a\\e[2Jb\"\n---\n\n\u{1b}]0;owned\u{7}\tx\n";
    here.file("pdf/SKILL.md", text);
    let said = daemon.run(&["skill", "add", &here.text("pdf")]);
    assert_eq!(said.code, Some(0), "{}", said.all());
    for words in [["skill", "ls", "-q"], ["skill", "show", "pdf"]] {
        let said = daemon.run(&words);
        assert!(!said.stdout.contains('\u{1b}'), "{}", said.all());
    }
    let table = daemon.run(&["skill", "ls"]).ok();
    assert!(table.contains("\\u{1b}[2J"), "{table}");
}

#[test]
fn a_missing_daemon_is_reported_by_skill_ls() {
    let said = boxwood()
        .args(["--url", "http://127.0.0.1:1", "skill", "ls"])
        .output()
        .expect("boxwood runs");
    let said = Said::from(said);
    assert_eq!(said.code, Some(1), "{}", said.all());
    assert!(
        said.stderr.starts_with("error: no daemon"),
        "{}",
        said.stderr
    );
}
