//! Skills that agents use in real boxes.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use crate::agent::tools::{call, exec, person, refusal, tool};
use crate::boxes::skill_commands::LocalDirectory;
use crate::support::command::run_with_input;
use crate::support::daemon::Daemon;

fn with_skills(names: &[&str]) -> (Daemon, LocalDirectory) {
    let (daemon, local) = (Daemon::start(), LocalDirectory::new());
    for name in names {
        daemon.run(&["skill", "add", &local.skill(name)]).ok();
    }
    (daemon, local)
}

#[track_caller]
fn activate(daemon: &Daemon, name: &str) -> Value {
    tool(daemon, "activate", &json!({"skill_name": name})).expect("activated")
}

#[test]
fn activate_gives_the_instructions_of_a_skill_that_is_there() {
    let (daemon, _local) = with_skills(&["pdf", "csv"]);
    let result = activate(&daemon, "pdf");
    assert_eq!(result["activated"], true);
    assert_eq!(result["skill_name"], "pdf");
    assert_eq!(result["mount_path"], "/workspace/.skills/pdf");
    let content = result["content"].as_str().expect("text");
    assert!(content.contains("Do it."), "{content}");
    let result = tool(&daemon, "activate", &json!({"skill_name": "nope"}));
    refusal(
        result,
        "Skill \"nope\" not found. Available skills: csv, pdf",
    );
    let result = tool(&daemon, "activate", &json!({"skill_name": " "}));
    refusal(result, "skill_name is required");
}

#[test]
fn a_visible_skill_is_read_and_only_an_active_one_is_used() {
    let (daemon, _local) = with_skills(&["pdf", "csv"]);
    let request = json!({"path": "/workspace/.skills/pdf/SKILL.md"});
    let read = tool(&daemon, "read", &request).expect("a result");
    assert!(
        read["content"]
            .as_str()
            .expect("text")
            .ends_with("Do it.\n"),
        "{read}"
    );
    let found = tool(
        &daemon,
        "grep",
        &json!({"pattern": "ran", "path": "/workspace/.skills/pdf"}),
    );
    assert_eq!(found.expect("a result")["total"], 1);

    let run = json!({"command": "sh .skills/pdf/scripts/run.sh well; sh /workspace/.skills/pdf/scripts/run.sh too"});
    let result = tool(&daemon, "exec", &run);
    refusal(
        result,
        "Skill \"pdf\" must be activated before exec can run in its package.",
    );
    let result = tool(
        &daemon,
        "exec",
        &json!({"command": "pwd", "workdir": "/workspace/.skills/pdf"}),
    );
    refusal(result, "Skill \"pdf\" is not available at this path.");
    let write = json!({"path": "/workspace/.skills/pdf/notes.md", "content": "mine"});
    refusal(
        tool(&daemon, "write", &write),
        "Skill \"pdf\" is not available",
    );
    let result = tool(&daemon, "read", &json!({"path": "/workspace/.skills"}));
    refusal(
        result,
        "Path must include a skill name under /workspace/.skills/<skill-name>.",
    );

    activate(&daemon, "pdf");
    let result = tool(&daemon, "exec", &run).expect("a result");
    assert_eq!(result["stdout"], "ran well\nran too\n", "{result}");
    let local = json!({"command": "./scripts/run.sh here", "workdir": "/workspace/.skills/pdf"});
    let result = tool(&daemon, "exec", &local).expect("a result");
    assert_eq!(result["stdout"], "ran here\n", "{result}");
    let two = json!({"command": "cat /workspace/.skills/pdf/a /workspace/.skills/csv/a"});
    refusal(
        tool(&daemon, "exec", &two),
        "exec can target at most one activated skill package per call.",
    );
    let result = tool(&daemon, "write", &write).expect("a result");
    assert_eq!(result["ok"], true, "{result}");
    let stored = daemon.run(&["skill", "cat", "pdf", "notes.md"]).ok();
    assert_eq!(stored, "mine", "it is in the store");
    let edit = json!({"path": "/workspace/.skills/pdf/notes.md", "old_string": "mine", "new_string": "ours"});
    let result = tool(&daemon, "edit", &edit).expect("a result");
    assert_eq!(result["ok"], true, "{result}");
    let cat = json!({"command": "cat /workspace/.skills/pdf/notes.md; echo x > /workspace/.skills/pdf/notes.md"});
    let result = tool(&daemon, "exec", &cat).expect("a result");
    assert_eq!(result["stdout"], "ours", "and in the box: {result}");
    assert_eq!(result["ok"], false, "where commands cannot change it");
    // Another conversation has activated nothing.
    let result = call(&daemon, "exec", &run, &person("b"));
    refusal(result, "must be activated");
}

#[test]
fn a_pipeline_shows_what_it_binds() {
    let (daemon, _local) = with_skills(&["pdf", "csv"]);
    let query = json!({"launcher_id": "bound", "variables": {"_pipeline_bound_skills": ["csv"]}});
    let read = |name: &str| {
        let path = format!("/workspace/.skills/{name}/SKILL.md");
        call(&daemon, "read", &json!({"path": path}), &query)
    };
    assert_eq!(read("csv").expect("a result")["ok"], true);
    refusal(read("pdf"), "Skill \"pdf\" is not available at this path.");
    let result = call(&daemon, "activate", &json!({"skill_name": "pdf"}), &query);
    refusal(result, "Skill \"pdf\" not found. Available skills: csv");
    let command = json!({"command": "ls /workspace/.skills"});
    let listed = call(&daemon, "exec", &command, &query).expect("a result");
    assert_eq!(listed["stdout"], "csv\n", "{listed}");
    let query = json!({"launcher_id": "told", "variables": {"_activated_skills": ["pdf"]}});
    let run = json!({"command": "sh /workspace/.skills/pdf/scripts/run.sh yes"});
    let result = call(&daemon, "exec", &run, &query).expect("a result");
    assert_eq!(result["stdout"], "ran yes\n", "{result}");
}

const SKILL: &str = "mkdir -p made/scripts && printf -- '---\\nname: made\\ndescription: Made here\\n---\\n\\nRun it.\\n' > made/SKILL.md && printf '#!/bin/sh\\necho made $1\\n' > made/scripts/run.sh && chmod +x made/scripts/run.sh && head -c 70000 /dev/urandom > made/data.bin && sha256sum < made/data.bin";

#[test]
fn a_directory_of_the_box_becomes_a_skill() {
    let (daemon, _local) = with_skills(&[]);
    let digest = exec(&daemon, SKILL);
    assert_eq!(digest["ok"], true, "{digest}");
    let request = json!({"path": "/workspace/made"});
    let result = tool(&daemon, "register_skill", &request).expect("a result");
    assert_eq!(result["registered"], true, "{result}");
    assert_eq!(result["skill_name"], "made");
    assert_eq!(result["source_path"], "/workspace/made");
    assert_eq!(result["skill"]["description"], "Made here");

    activate(&daemon, "made");
    let command =
        "/workspace/.skills/made/scripts/run.sh well; sha256sum < /workspace/.skills/made/data.bin";
    let result = exec(&daemon, command);
    let expected = format!("made well\n{}", digest["stdout"].as_str().expect("text"));
    assert_eq!(result["stdout"], expected.as_str(), "{result}");

    let repeated = tool(&daemon, "register_skill", &request);
    match repeated {
        Ok(result) => assert_eq!(result["ok"], false, "{result}"),
        Err(error) => assert!(error.to_string().contains("already exists"), "{error}"),
    }
    let other = json!({"path": "/workspace/made", "name": "other", "description": "Renamed", "display_name": "The other"});
    let result = tool(&daemon, "register_skill", &other).expect("a result");
    assert_eq!(result["skill_name"], "other", "{result}");
    assert_eq!(result["skill"]["description"], "Renamed", "{result}");
    let names = daemon.run(&["skill", "ls", "-q"]).ok();
    let mut names: Vec<&str> = names.lines().collect();
    names.sort_unstable();
    assert_eq!(names, ["made", "other"]);
}

#[test]
fn other_paths_cannot_be_registered_as_skills() {
    let (daemon, _local) = with_skills(&[]);
    let secret = tempfile::NamedTempFile::new().expect("a file");
    fs::write(secret.path(), "secret of the host").expect("written");
    exec(
        &daemon,
        &format!(
            "{SKILL}; mkdir empty; cp -r made linked; ln -s {} linked/secret; cp -r made dir; ln -s /etc dir/etc",
            secret.path().display()
        ),
    );
    let register = |path: &str| tool(&daemon, "register_skill", &json!({"path": path}));
    let message_of = |path: &str| match register(path) {
        Ok(result) => {
            assert_eq!(result["ok"], false, "{path}: {result}");
            result["error"].as_str().expect("an error").to_owned()
        }
        Err(error) => error["message"].as_str().expect("a message").to_owned(),
    };
    assert!(message_of("/etc").contains("path must be under /workspace"));
    assert!(message_of("/workspace/../etc").contains("path escapes the workspace boundary"));
    assert!(message_of("/workspace/empty").contains("No SKILL.md found in /workspace/empty"));
    assert!(!message_of("/workspace/nothing").is_empty());
    for path in ["/workspace/linked", "/workspace/dir"] {
        let message = message_of(path);
        assert!(
            message.contains("neither a file nor a directory"),
            "{message}"
        );
    }
    assert_eq!(daemon.run(&["skill", "ls", "-q"]).ok(), "");
}

/// A package without a build: pip only unpacks it, and needs no network.
const WHEEL: &str = r"
import sys, zipfile
with zipfile.ZipFile(sys.argv[1], 'w') as wheel:
    wheel.writestr('greeter.py', 'def hello():\n    return \'hello\'\n')
    about = 'greeter-1.0.dist-info/'
    wheel.writestr(about + 'METADATA', 'Metadata-Version: 2.1\nName: greeter\nVersion: 1.0\n')
    wheel.writestr(about + 'WHEEL', 'Wheel-Version: 1.0\nGenerator: by hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n')
    wheel.writestr(about + 'RECORD', '')
";

const NEEDS: &str = "/workspace/.skills/py/greeter-1.0-py3-none-any.whl\n";

/// Returns the output, with the path of the environment, and whether this call built the environment.
fn greet(call: Command) -> (String, bool) {
    let command = "python -c 'import greeter; print(greeter.hello())'; echo $VIRTUAL_ENV";
    let request =
        json!({"command": command, "workdir": "/workspace/.skills/py", "timeout_sec": 120});
    let output = run_with_input(call, request.to_string().as_bytes()).ok();
    let answer: Value = serde_json::from_str(&output).expect("JSON");
    let stderr = answer["result"]["stderr"].as_str().expect("text");
    let stdout = answer["result"]["stdout"].as_str().expect("text");
    let has_built = stderr.contains("boxwood: building the Python environment");
    (stdout.to_owned(), has_built)
}

#[test]
fn a_python_skill_has_an_environment_that_is_built_once() {
    let (daemon, local) = (Daemon::start(), LocalDirectory::new());
    let skill = local.skill("py");
    let wheel = local.text("py/greeter-1.0-py3-none-any.whl");
    let made = Command::new("python3").args(["-c", WHEEL, &wheel]).status();
    assert!(made.expect("python3 runs").success());
    local.file("py/requirements.txt", NEEDS);
    daemon.run(&["skill", "add", &skill]).ok();
    activate(&daemon, "py");
    let query = person("a").to_string();
    let args = ["tool", "call", "exec", "-", "--query", &query, "-o", "json"];
    // Two at the same time: one builds, the other waits for it.
    let (first, second) = (daemon.command(&args), daemon.command(&args));
    let (one, other) = std::thread::scope(|scope| {
        let other = scope.spawn(move || greet(second));
        (greet(first), other.join().expect("it ran"))
    });
    assert!(one.1 != other.1, "{one:?} {other:?}");
    assert_eq!(one.0, other.0);
    assert!(one.0.starts_with("hello\n/"), "{one:?}");
    let again = greet(daemon.command(&args));
    assert_eq!(again, (one.0.clone(), false), "a later command finds it");

    let other = json!({"path": "/workspace/.skills/py/requirements.txt", "content": format!("# again\n{NEEDS}")});
    let written = tool(&daemon, "write", &other).expect("a result");
    assert_eq!(written["ok"], true, "{written}");
    let (output, has_built) = greet(daemon.command(&args));
    assert!(has_built, "other manifests want another environment");
    assert!(output.starts_with("hello\n/"), "{output}");
    assert_ne!(output, one.0);
}
