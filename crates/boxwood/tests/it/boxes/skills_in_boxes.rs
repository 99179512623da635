//! Skills in real boxes.

use crate::boxes::skill_commands::Here;
use crate::support::command::{Said, boxwood, run_with_input};
use crate::support::daemon::Daemon;

fn with_skill() -> (Daemon, Here) {
    let (daemon, here) = (Daemon::start(), Here::new());
    daemon.run(&["skill", "add", &here.skill("pdf")]).ok();
    (daemon, here)
}

#[test]
fn a_box_has_its_skills_and_cannot_change_them() {
    let (daemon, here) = with_skill();
    daemon.run(&["skill", "add", &here.skill("csv")]).ok();
    let script = "ls /workspace/.skills; cat .skills/pdf/SKILL.md; .skills/csv/scripts/run.sh well";
    let words = [
        "exec", "s", "--skill", "pdf", "--skill", "csv", "--", "sh", "-c", script,
    ];
    let said = daemon.run(&words).ok();
    assert_eq!(
        said,
        "csv\npdf\n---\nname: pdf\ndescription: The skill pdf\n---\n\nDo it.\nran well\n"
    );
    for script in [
        "echo x > .skills/pdf/new",
        "echo x >> .skills/pdf/SKILL.md",
        "rm .skills/pdf/SKILL.md",
        "mv .skills/pdf .skills/other",
        "chmod 777 .skills/pdf/SKILL.md",
    ] {
        let said = daemon.run(&["exec", "s", "--", "sh", "-c", script]);
        assert!(matches!(said.code, Some(1 | 2)), "{script}: {}", said.all());
    }
    let text = daemon.run(&["skill", "cat", "pdf", "SKILL.md"]).ok();
    assert!(text.ends_with("Do it.\n"), "{text}");
    // The rest of the workspace is the box's own.
    let said = daemon.run(&["exec", "s", "--", "sh", "-c", "echo x > note && cat note"]);
    assert_eq!(said.ok(), "x\n");
}

#[test]
fn a_skill_that_is_not_there_is_named() {
    let (daemon, _here) = with_skill();
    for (name, words) in [
        ("nope", "skill `nope` not found"),
        ("PDF", "skill `PDF` not found"),
        ("../pdf", "must be the name of a skill"),
    ] {
        let said = daemon.run(&["exec", "s", "--skill", name, "--", "true"]);
        assert_eq!(said.code, Some(125), "{}", said.all());
        assert!(said.stderr.contains(words), "{}", said.stderr);
    }
    assert_eq!(daemon.run(&["ls", "-q"]).ok(), "", "no box was made");
}

#[test]
fn a_skill_added_later_appears_in_the_running_box() {
    let (daemon, here) = with_skill();
    let pid = "echo $$ > keep; sleep 1000 & echo $!";
    daemon.run(&["create", "s", "--skill", "pdf"]).ok();
    daemon.run(&["start", "s", "--", "sh", "-c", pid]).ok();
    daemon.run(&["skill", "add", &here.skill("late")]).ok();
    let said = daemon.run(&["exec", "s", "--", "ls", "/workspace/.skills"]);
    assert_eq!(said.ok(), "pdf\n", "not requested yet");

    let said = daemon.run(&[
        "exec",
        "s",
        "--skill",
        "late",
        "--",
        "sh",
        "-c",
        "cat keep >/dev/null && .skills/late/scripts/run.sh now; touch .skills/late/x",
    ]);
    assert_eq!(said.code, Some(1), "{}", said.all());
    assert_eq!(said.stdout, "ran now\n", "{}", said.all());
    let said = daemon.run(&["exec", "s", "--", "ls", "/workspace/.skills"]);
    assert_eq!(said.ok(), "late\npdf\n", "the first one stays");
}

#[test]
fn what_changes_in_the_store_changes_in_the_box() {
    let (daemon, _here) = with_skill();
    daemon.run(&["create", "s", "--skill", "pdf"]).ok();
    let write = daemon.command(&["skill", "edit", "pdf", "notes/new.txt", "-"]);
    run_with_input(write, b"hello\n").ok();
    let read = ["exec", "s", "--", "cat", ".skills/pdf/notes/new.txt"];
    assert_eq!(daemon.run(&read).ok(), "hello\n");
    let write = daemon.command(&["skill", "edit", "pdf", "notes/new.txt", "-"]);
    run_with_input(write, b"again\n").ok();
    assert_eq!(daemon.run(&read).ok(), "again\n");
    daemon.run(&["skill", "rm", "pdf"]).ok();
    let said = daemon.run(&["exec", "s", "--", "ls", "-A", ".skills/pdf"]);
    assert_eq!(said.ok(), "", "it is gone here as well");
}

#[test]
fn run_uses_the_same_store_without_a_daemon() {
    let (mut daemon, _here) = with_skill();
    assert_eq!(daemon.terminate(), Some(0));
    let said = boxwood()
        .env("BOXWOOD_STATE_DIR", daemon.directory().join("state"))
        .args(["run", "--skill", "pdf", "--"])
        .args(["sh", "-c", ".skills/pdf/scripts/run.sh alone"])
        .output()
        .expect("boxwood runs");
    assert_eq!(Said::from(said).ok(), "ran alone\n");
    let said = boxwood()
        .env("BOXWOOD_STATE_DIR", daemon.directory().join("state"))
        .args(["run", "--skill", "nope", "--", "true"])
        .output()
        .expect("boxwood runs");
    let said = Said::from(said);
    assert_eq!(said.code, Some(125), "{}", said.all());
    assert!(said.stderr.contains("nope"), "{}", said.stderr);
}
