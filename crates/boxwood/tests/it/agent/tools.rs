//! The agent tools in real boxes: the box of each conversation, and its limits.

use std::fs;

use serde_json::{Value, json};

use crate::support::command::run_with_input;
use crate::support::daemon::{Daemon, serve_command};

/// The tool's result, or the error of a refused call.
pub(crate) type ToolResult = Result<Value, Value>;

pub(crate) fn call(daemon: &Daemon, tool: &str, arguments: &Value, query: &Value) -> ToolResult {
    let query = query.to_string();
    let args = ["tool", "call", tool, "-", "--query", &query, "-o", "json"];
    let output = run_with_input(daemon.command(&args), arguments.to_string().as_bytes());
    if output.stdout.is_empty() {
        assert_eq!(output.code, Some(1), "{}", output.all());
        let body: Value = serde_json::from_str(&output.stderr)
            .unwrap_or_else(|error| panic!("{error}: {}", output.all()));
        return Err(body["error"].clone());
    }
    let answer: Value = serde_json::from_str(&output.stdout).expect("JSON");
    let result = answer["result"].clone();
    let failed = result["ok"] == false;
    assert_eq!(output.code, Some(i32::from(failed)), "{}", output.all());
    Ok(result)
}

/// Calls a tool in the default conversation of these tests.
pub(crate) fn tool(daemon: &Daemon, name: &str, arguments: &Value) -> ToolResult {
    call(daemon, name, arguments, &person("a"))
}

pub(crate) fn person(id: &str) -> Value {
    json!({"launcher_type": "person", "launcher_id": id})
}

#[track_caller]
pub(crate) fn exec(daemon: &Daemon, command: &str) -> Value {
    tool(daemon, "exec", &json!({"command": command})).expect("a result")
}

#[track_caller]
pub(crate) fn refusal(result: ToolResult, expected: &str) -> Value {
    let error = result.expect_err("refused");
    let message = error["message"].as_str().expect("a message");
    assert!(message.contains(expected), "`{message}` lacks `{expected}`");
    error
}

fn with_settings(settings: &[(&str, &str)]) -> Daemon {
    Daemon::start_with(tempfile::tempdir().expect("a directory"), settings)
}

#[test]
fn two_commands_of_a_conversation_are_in_one_box() {
    let daemon = Daemon::start();
    let first = exec(&daemon, "echo kept > note; pwd");
    assert_eq!(first["ok"], true, "{first}");
    assert_eq!(first["stdout"], "/workspace\n");
    assert_eq!(first["session_id"], "person_a");
    assert_eq!(first["backend"], "native");
    let second = exec(&daemon, "cat note");
    assert_eq!(second["stdout"], "kept\n");
    let other = call(
        &daemon,
        "exec",
        &json!({"command": "ls -A | grep -v skills || true"}),
        &person("b"),
    );
    assert_eq!(other.expect("a result")["stdout"], "", "a box of its own");
    let listed = daemon.run(&["ls", "-q"]).ok();
    assert_eq!(listed, "person_a\nperson_b\n");
}

#[test]
fn a_command_gets_the_arguments_that_a_model_may_set() {
    let daemon = Daemon::start();
    let arguments = json!({
        "command": "pwd; echo $WORD; echo bad >&2; exit 4",
        "workdir": "/workspace/deep/er",
        "env": {"WORD": "字"},
        "timeout_sec": 20,
        "description": "for the log",
    });
    let result = tool(&daemon, "exec", &arguments).expect("a result");
    assert_eq!(result["ok"], false);
    assert_eq!(result["exit_code"], 4);
    assert_eq!(result["stdout"], "/workspace/deep/er\n字\n");
    assert_eq!(result["stderr"], "bad\n");
    let late = tool(
        &daemon,
        "exec",
        &json!({"command": "echo begun; sleep 100", "timeout_sec": 4}),
    )
    .expect("a result");
    assert_eq!(late["status"], "timed_out", "{late}");
    assert_eq!(late["stdout"], "begun\n");
    assert_eq!(late["reason"], "timeout");
    assert_eq!(exec(&daemon, "echo alive")["stdout"], "alive\n");
}

#[test]
fn a_profile_bounds_what_a_model_asks_for() {
    let daemon = with_settings(&[("BOX__LOCAL__PROFILE", "offline_readonly")]);
    let arguments =
        json!({"command": "touch /usr/x; touch /workspace/x; echo $?", "timeout_sec": 99999});
    let result = tool(&daemon, "exec", &arguments).expect("a result");
    let stderr = result["stderr"].as_str().expect("text");
    assert!(stderr.contains("/usr/x"), "{result}");
    let notices = result["notices"].to_string();
    assert!(notices.contains("timeout_sec"), "{result}");
}

/// Its `/tmp` has 48 MiB. Commands that fail while it is full report a full disk.
#[test]
fn kept_outputs_leave_room_in_the_smallest_box() {
    let daemon = with_settings(&[("BOX__LOCAL__PROFILE", "offline_readonly")]);
    for _ in 0..4 {
        let long = exec(&daemon, "head -c 17000000 /dev/zero | tr '\\0' x");
        let notices = long["notices"].to_string();
        assert!(
            notices.contains("the first 8 MiB of the output"),
            "{notices}"
        );
    }
    let failed = exec(&daemon, "exit 3");
    assert_eq!(failed["exit_code"], 3, "{failed}");
    assert!(failed.get("reason").is_none(), "{failed}");
    let taken = exec(&daemon, "cat /tmp/.boxwood/output/* | wc -c");
    assert_eq!(taken["stdout"], "16777216\n");

    // A box that fills its `/tmp` itself loses the oldest output, and not the newest.
    exec(&daemon, "head -c 60000000 /dev/zero > /tmp/full; true");
    let squeezed = exec(&daemon, "seq 1 300000");
    let file = squeezed["stdout_file"].as_str().expect("a file");
    let whole = exec(
        &daemon,
        &format!("wc -c < {file}; ls /tmp/.boxwood/output | wc -l"),
    );
    assert_eq!(whole["stdout"], "1988895\n2\n");
}

#[test]
fn long_output_is_shown_in_part_and_kept_whole() {
    let daemon = Daemon::start();
    let result = exec(&daemon, "seq 1 300000; seq 1 5 >&2");
    assert_eq!(result["ok"], true, "{result}");
    let shown = result["stdout"].as_str().expect("text");
    assert_eq!(shown.chars().count(), 4000);
    assert!(shown.starts_with("1\n2\n"), "{shown}");
    assert!(shown.ends_with("299999\n300000\n"), "{shown}");
    assert!(shown.contains("characters truncated] ..."), "{shown}");
    assert_eq!(result["stdout_truncated"], true);
    assert_eq!(
        result["stderr"], "1\n2\n3\n4\n5\n",
        "the other one is whole"
    );
    assert_eq!(result["stderr_truncated"], false);
    assert!(result.get("stderr_file").is_none(), "{result}");
    let file = result["stdout_file"].as_str().expect("a file");
    assert!(file.starts_with("/tmp/.boxwood/output/"), "{file}");
    assert!(result["notices"].to_string().contains(file), "{result}");

    let request = json!({"path": file, "offset": 150_000, "limit": 3});
    let part = tool(&daemon, "read", &request).expect("a result");
    assert_eq!(part["content"], "150000\n150001\n150002\n", "{part}");
    let whole = exec(&daemon, &format!("wc -c < {file}"));
    assert_eq!(whole["stdout"], "1988895\n", "every byte of it");

    let streams =
        "head -c 1500000 /dev/zero | tr '\\0' a; head -c 1500000 /dev/zero | tr '\\0' b >&2";
    let both = exec(&daemon, streams);
    assert_eq!(both["stdout_truncated"], true);
    assert_eq!(both["stderr_truncated"], true);
    for name in ["stdout_file", "stderr_file"] {
        let file = both[name].as_str().expect("a file");
        let size = exec(&daemon, &format!("wc -c < {file}"));
        assert_eq!(size["stdout"], "1500000\n", "{name}");
    }
}

#[test]
fn the_default_workspace_is_made_and_is_the_boxes_own() {
    let home = tempfile::tempdir().expect("a directory");
    let root = home.path().join("box");
    fs::create_dir(&root).expect("made");
    let root_text = root.to_str().expect("UTF-8");
    let daemon = with_settings(&[("BOX__LOCAL__HOST_ROOT", root_text)]);
    assert!(root.join("default").is_dir(), "made at the start");
    let result = exec(&daemon, "echo from the box > out.txt");
    assert_eq!(result["ok"], true, "{result}");
    let text = fs::read_to_string(root.join("default/out.txt")).expect("there");
    assert_eq!(text, "from the box\n");
    let request = json!({"path": "/workspace/dir/new.txt", "content": "by a tool"});
    tool(&daemon, "write", &request).expect("written");
    let text = fs::read_to_string(root.join("default/dir/new.txt")).expect("there");
    assert_eq!(text, "by a tool");
}

#[test]
fn a_workspace_outside_the_roots_is_refused() {
    let home = tempfile::tempdir().expect("a directory");
    let (inside, outside) = (home.path().join("in"), home.path().join("out"));
    fs::create_dir(&inside).expect("made");
    fs::create_dir(&outside).expect("made");
    let (inside, outside) = (
        inside.to_str().expect("UTF-8"),
        outside.to_str().expect("UTF-8"),
    );
    let daemon = with_settings(&[
        ("BOX__LOCAL__DEFAULT_WORKSPACE", outside),
        ("BOX__LOCAL__ALLOWED_MOUNT_ROOTS", inside),
    ]);
    let result = tool(&daemon, "exec", &json!({"command": "true"}));
    let error = refusal(result, "host_path is outside allowed_mount_roots");
    assert_eq!(error["code"], "validation_error");
    let hint = error["hint"].as_str().expect("a hint");
    assert!(hint.contains("[box.local]"), "{hint}");
    assert_eq!(daemon.run(&["ls", "-q"]).ok(), "", "no box was made");
}

#[test]
fn a_workspace_that_cannot_be_made_keeps_the_daemon_from_starting() {
    let home = tempfile::tempdir().expect("a directory");
    let missing = home.path().join("a/b");
    let file = home.path().join("file");
    fs::write(&file, "").expect("written");
    let roots = home.path().join("roots");
    let start_error = |workspace: &str, roots: &str| {
        let state = tempfile::tempdir().expect("a directory");
        let output = serve_command(state.path())
            .env("BOX__LOCAL__DEFAULT_WORKSPACE", workspace)
            .env("BOX__LOCAL__ALLOWED_MOUNT_ROOTS", roots)
            .output()
            .expect("boxwood runs");
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let (missing, file) = (
        missing.to_str().expect("UTF-8"),
        file.to_str().expect("UTF-8"),
    );
    let roots = roots.to_str().expect("UTF-8");
    let check = |text: String, expected: &str| assert!(text.contains(expected), "{text}");
    check(
        start_error(missing, roots),
        &format!("box.local.default_workspace is outside allowed_mount_roots: {roots}"),
    );
    check(
        start_error(missing, ""),
        "box.local.default_workspace cannot be created because no allowed_mount_roots are configured",
    );
    check(
        start_error(file, roots),
        "box.local.default_workspace must point to a directory on the host",
    );
}

#[test]
fn a_full_workspace_is_refused_and_a_growing_one_is_stopped() {
    let home = tempfile::tempdir().expect("a directory");
    let root = home.path().to_str().expect("UTF-8");
    let daemon = with_settings(&[
        ("BOX__LOCAL__HOST_ROOT", root),
        ("BOX__LOCAL__WORKSPACE_QUOTA_MB", "8"),
    ]);
    let result = exec(&daemon, "echo fits > small; cat small");
    assert_eq!(result["stdout"], "fits\n", "{result}");
    let result = tool(
        &daemon,
        "exec",
        &json!({"command": "head -c 400M /dev/zero > big; sleep 100; echo too late", "timeout_sec": 60}),
    )
    .expect("a result");
    assert_eq!(result["ok"], false, "{result}");
    assert_eq!(result["reason"], "disk_quota", "{result}");
    assert!(
        !result["stdout"]
            .as_str()
            .expect("text")
            .contains("too late")
    );
    let used = fs::metadata(home.path().join("default/big")).map_or(0, |data| data.len());
    assert!(used <= (8 + 64) << 20, "{used}");

    // Nor does an upload get around it.
    fs::remove_file(home.path().join("default/big")).expect("removed");
    let upload = tempfile::NamedTempFile::new().expect("a file");
    upload.as_file().set_len(48 << 20).expect("long");
    let from = upload.path().to_str().expect("UTF-8");
    let output = daemon.run(&["cp", from, "person_a:/workspace/up"]);
    assert_eq!(output.code, Some(1), "{}", output.all());
    assert!(
        output.stderr.contains("workspace quota"),
        "{}",
        output.stderr
    );
    assert!(!home.path().join("default/up").exists());

    let file = fs::File::create(home.path().join("default/more")).expect("made");
    std::io::Write::write_all(&mut &file, &vec![1; 9 << 20]).expect("written");
    let result = tool(&daemon, "exec", &json!({"command": "true"}));
    refusal(result, "workspace quota exceeded before execution: used=");
}

#[test]
fn the_tools_are_shown_to_people() {
    let daemon = Daemon::start();
    let names = daemon.run(&["tool", "ls", "-q"]).ok();
    assert_eq!(
        names,
        "exec\nread\nwrite\nedit\nglob\ngrep\nactivate\nregister_skill\n"
    );
    let table = daemon.run(&["tool", "ls"]).ok();
    assert!(table.contains("command"), "{table}");
    let functions = daemon.run(&["tool", "ls", "--openai"]).ok();
    let functions: Value = serde_json::from_str(&functions).expect("JSON");
    assert_eq!(functions[0]["function"]["name"], "exec");
    let output = daemon.run(&["tool", "call", "exec", r#"{"command": "echo hi; exit 2"}"#]);
    assert_eq!(output.code, Some(1), "{}", output.all());
    assert!(output.stdout.contains("hi"), "{}", output.all());
    let output = daemon.run(&["tool", "call", "exec", "[1]"]);
    assert_eq!(output.code, Some(2), "{}", output.all());
}
