//! Skills in real boxes.

use crate::boxes::skill_commands::LocalDirectory;
use crate::support::command::{CommandResult, boxwood, run_with_input};
use crate::support::daemon::Daemon;

fn with_skill() -> (Daemon, LocalDirectory) {
    let (daemon, local) = (Daemon::start(), LocalDirectory::new());
    daemon.run(&["skill", "add", &local.skill("pdf")]).ok();
    (daemon, local)
}

#[test]
fn a_box_has_its_skills_and_cannot_change_them() {
    let (daemon, local) = with_skill();
    daemon.run(&["skill", "add", &local.skill("csv")]).ok();
    let script = "ls /workspace/.skills; cat .skills/pdf/SKILL.md; .skills/csv/scripts/run.sh well";
    let args = [
        "exec", "s", "--skill", "pdf", "--skill", "csv", "--", "sh", "-c", script,
    ];
    let output = daemon.run(&args).ok();
    assert_eq!(
        output,
        "csv\npdf\n---\nname: pdf\ndescription: The skill pdf\n---\n\nDo it.\nran well\n"
    );
    for script in [
        "echo x > .skills/pdf/new",
        "echo x >> .skills/pdf/SKILL.md",
        "rm .skills/pdf/SKILL.md",
        "mv .skills/pdf .skills/other",
        "chmod 777 .skills/pdf/SKILL.md",
    ] {
        let output = daemon.run(&["exec", "s", "--", "sh", "-c", script]);
        assert!(
            matches!(output.code, Some(1 | 2)),
            "{script}: {}",
            output.all()
        );
    }
    let text = daemon.run(&["skill", "cat", "pdf", "SKILL.md"]).ok();
    assert!(text.ends_with("Do it.\n"), "{text}");
    // The rest of the workspace is the box's own.
    let output = daemon.run(&["exec", "s", "--", "sh", "-c", "echo x > note && cat note"]);
    assert_eq!(output.ok(), "x\n");
}

#[test]
fn a_skill_that_is_not_there_is_named() {
    let (daemon, _local) = with_skill();
    for (name, expected) in [
        ("nope", "skill `nope` not found"),
        ("PDF", "skill `PDF` not found"),
        ("../pdf", "must be the name of a skill"),
    ] {
        let output = daemon.run(&["exec", "s", "--skill", name, "--", "true"]);
        assert_eq!(output.code, Some(125), "{}", output.all());
        assert!(output.stderr.contains(expected), "{}", output.stderr);
    }
    assert_eq!(daemon.run(&["ls", "-q"]).ok(), "", "no box was made");
}

#[test]
fn a_skill_added_later_appears_in_the_running_box() {
    let (daemon, local) = with_skill();
    let pid = "echo $$ > keep; sleep 1000 & echo $!";
    daemon.run(&["create", "s", "--skill", "pdf"]).ok();
    daemon.run(&["start", "s", "--", "sh", "-c", pid]).ok();
    daemon.run(&["skill", "add", &local.skill("late")]).ok();
    let output = daemon.run(&["exec", "s", "--", "ls", "/workspace/.skills"]);
    assert_eq!(output.ok(), "pdf\n", "not requested yet");

    let output = daemon.run(&[
        "exec",
        "s",
        "--skill",
        "late",
        "--",
        "sh",
        "-c",
        "cat keep >/dev/null && .skills/late/scripts/run.sh now; touch .skills/late/x",
    ]);
    assert_eq!(output.code, Some(1), "{}", output.all());
    assert_eq!(output.stdout, "ran now\n", "{}", output.all());
    let output = daemon.run(&["exec", "s", "--", "ls", "/workspace/.skills"]);
    assert_eq!(output.ok(), "late\npdf\n", "the first one stays");
}

#[test]
fn what_changes_in_the_store_changes_in_the_box() {
    let (daemon, _local) = with_skill();
    daemon.run(&["create", "s", "--skill", "pdf"]).ok();
    let write = daemon.command(&["skill", "edit", "pdf", "notes/new.txt", "-"]);
    run_with_input(write, b"hello\n").ok();
    let read = ["exec", "s", "--", "cat", ".skills/pdf/notes/new.txt"];
    assert_eq!(daemon.run(&read).ok(), "hello\n");
    let write = daemon.command(&["skill", "edit", "pdf", "notes/new.txt", "-"]);
    run_with_input(write, b"again\n").ok();
    assert_eq!(daemon.run(&read).ok(), "again\n");
    daemon.run(&["skill", "rm", "pdf"]).ok();
    let output = daemon.run(&["exec", "s", "--", "ls", "-A", ".skills/pdf"]);
    assert_eq!(output.ok(), "", "it is gone here as well");
}

#[test]
fn run_uses_the_same_store_without_a_daemon() {
    let (mut daemon, _local) = with_skill();
    assert_eq!(daemon.terminate(), Some(0));
    let output = boxwood()
        .env("BOXWOOD_STATE_DIR", daemon.directory().join("state"))
        .args(["run", "--skill", "pdf", "--"])
        .args(["sh", "-c", ".skills/pdf/scripts/run.sh alone"])
        .output()
        .expect("boxwood runs");
    assert_eq!(CommandResult::from(output).ok(), "ran alone\n");
    let output = boxwood()
        .env("BOXWOOD_STATE_DIR", daemon.directory().join("state"))
        .args(["run", "--skill", "nope", "--", "true"])
        .output()
        .expect("boxwood runs");
    let output = CommandResult::from(output);
    assert_eq!(output.code, Some(125), "{}", output.all());
    assert!(output.stderr.contains("nope"), "{}", output.stderr);
}
