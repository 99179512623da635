//! MCP servers in real boxes, with one daemon and across restarts.

use std::fs::{self, File};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::command::CommandResult;
use crate::support::daemon::{Daemon, serve_command};
use crate::support::host::{pids, token, wait_until};
use crate::support::http::{Answer, get, post, request};

const TINY: &str = include_str!("../../../../boxwood-server/tests/it/tiny_server.py");

const SECRET: &str = "s3cret-value-of-a-key";

/// Its token is on the command line of every process of it, and nowhere else.
fn spec(name: &str, token: &str) -> Value {
    json!({
        "name": name,
        "command": "python3",
        "args": ["-u", "-c", format!("# {token}\n{TINY}")],
        "env": {"API_KEY": SECRET},
        "box": {"network": "off"},
    })
}

/// A daemon that logs everything to a file.
fn start(directory: TempDir, settings: &[(&str, &str)]) -> Daemon {
    let log = File::options()
        .create(true)
        .append(true)
        .open(directory.path().join("log"))
        .expect("a log");
    let mut command = serve_command(directory.path());
    command
        .stderr(log)
        .env("BOXWOOD_LOG__FILTER", "debug")
        .envs(settings.iter().copied());
    Daemon::started_by(command, directory)
}

fn fresh() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

#[track_caller]
fn connected(daemon: &Daemon, name: &str) -> Value {
    connected_within(daemon, name, Duration::from_mins(1))
}

#[track_caller]
fn connected_within(daemon: &Daemon, name: &str, limit: Duration) -> Value {
    let begin = Instant::now();
    loop {
        let info = get(daemon, &format!("/v1/mcp/servers/{name}")).json();
        let runtime = &info["runtime"];
        if runtime["status"] == "connected" {
            return runtime.clone();
        }
        assert_ne!(runtime["status"], "error", "{runtime}");
        assert!(begin.elapsed() < limit, "{runtime}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn add(daemon: &Daemon, spec: &Value) {
    let added = post(daemon, "/v1/mcp/servers", spec);
    assert_eq!(added.status, 201, "{added:?}");
    connected(daemon, spec["name"].as_str().expect("a name"));
}

#[track_caller]
fn text(result: &Value) -> String {
    let text = result["content"][0]["text"].as_str();
    text.unwrap_or_else(|| panic!("{result}")).to_owned()
}

fn call(daemon: &Daemon, name: &str, tool: &str) -> String {
    let path = format!("/v1/mcp/servers/{name}/tools/{tool}");
    let answer = post(daemon, &path, &json!({"arguments": {"word": "hello"}}));
    assert_eq!(answer.status, 200, "{answer:?}");
    text(&answer.json())
}

/// The same as an MCP client does it.
fn call_as_client(daemon: &Daemon, path: &str, tool: &str) -> String {
    let say = |session: Option<&str>, message: Value| -> Answer {
        let mut headers = vec![("accept", "application/json, text/event-stream")];
        headers.extend(session.map(|id| ("mcp-session-id", id)));
        request(daemon, "POST", path, &headers, Some(&message))
    };
    let hello = say(
        None,
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"}}}),
    );
    assert_eq!(hello.status, 200, "{hello:?}");
    let session = hello.header("mcp-session-id").map(str::to_owned);
    let session = session.as_deref();
    let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    assert_eq!(say(session, ready).status, 202);
    let answer = say(
        session,
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call",
            "params": {"name": tool, "arguments": {"word": "hello"}}}),
    );
    assert_eq!(answer.status, 200, "{answer:?}");
    text(&answer.json()["result"])
}

#[test]
fn a_hosted_server_survives_killed_daemons_and_a_takeover() {
    let token = token("hosted");
    let mut daemon = start(fresh(), &[]);
    add(&daemon, &spec("tiny", &token));
    let before = (pids(&token), call(&daemon, "tiny", "pid"));
    assert_eq!(before.0.len(), 1, "one process: {:?}", before.0);
    let hello = "{\"word\": \"hello\"}";
    assert_eq!(call_as_client(&daemon, "/mcp/tiny", "echo"), hello);

    for _ in 0..2 {
        let directory = daemon.kill();
        daemon = start(directory, &[]);
        let runtime = connected(&daemon, "tiny");
        assert_eq!(runtime["tool_count"], 5, "{runtime}");
        assert_eq!((pids(&token), call(&daemon, "tiny", "pid")), before);
        assert_eq!(call_as_client(&daemon, "/mcp/tiny", "echo"), hello);
        let refused = daemon.run(&["exec", "mcp-tiny", "--", "env"]);
        assert_eq!(refused.code, Some(125), "{refused:?}");
        assert!(
            refused.stderr.contains("hint: use `boxwood mcp"),
            "{refused:?}"
        );
    }
    assert_eq!(daemon.taken_over(&[]), Some(0));
    connected(&daemon, "tiny");
    assert_eq!((pids(&token), call(&daemon, "tiny", "pid")), before);
    assert_eq!(call_as_client(&daemon, "/mcp/_all", "tiny__echo"), hello);

    let removed = request(&daemon, "DELETE", "/v1/mcp/servers/tiny", &[], None);
    assert_eq!(removed.status, 200, "{removed:?}");
    wait_until("its process to end", || pids(&token).is_empty());
    assert_eq!(get(&daemon, "/v1/sessions/mcp-tiny").status, 404);
    let home = daemon.directory().join("state/mcp");
    for place in ["servers", "secrets", "greetings", "work", "boxes"] {
        let left: Vec<_> = fs::read_dir(home.join(place))
            .into_iter()
            .flatten()
            .collect();
        assert!(left.is_empty(), "{place}: {left:?}");
    }
}

#[test]
fn the_shutdown_mode_applies_to_hosted_servers() {
    let token = token("hosted-end");
    let keep = [("BOXWOOD_SHUTDOWN__BOXES", "stop_ephemeral")];
    let mut daemon = start(fresh(), &keep);
    add(&daemon, &spec("tiny", &token));
    let before = pids(&token);
    assert_eq!(daemon.terminate(), Some(0));
    assert_eq!(pids(&token), before, "it is a persistent session's");
    let mut daemon = start(daemon.leave_directory(), &[]);
    connected(&daemon, "tiny");
    assert_eq!(pids(&token), before);

    assert_eq!(daemon.terminate(), Some(0));
    wait_until("its process to end", || pids(&token).is_empty());
    let daemon = start(daemon.leave_directory(), &[]);
    connected(&daemon, "tiny");
    assert_eq!(pids(&token).len(), 1, "started anew");
    assert_eq!(call(&daemon, "tiny", "secret"), SECRET.len().to_string());
}

#[test]
fn the_value_of_a_variable_is_in_its_servers_process_and_nowhere_else() {
    let token = token("hosted-secret");
    let daemon = start(fresh(), &[]);
    add(&daemon, &spec("tiny", &token));
    assert_eq!(call(&daemon, "tiny", "secret"), SECRET.len().to_string());
    assert_eq!(
        call_as_client(&daemon, "/mcp/tiny", "secret"),
        SECRET.len().to_string()
    );
    for path in [
        "/v1/mcp/servers",
        "/v1/mcp/servers/tiny",
        "/v1/mcp/servers/tiny/logs",
        "/v1/sessions",
        "/v1/sessions/mcp-tiny",
        // Only the operator may read these, and they have no secrets either.
        "/v1/sessions/mcp-tiny/processes",
        "/v1/sessions/mcp-tiny/managed-process/main/logs",
    ] {
        let answer = request(&daemon, "GET", path, &[("boxwood-operator", "1")], None);
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        assert!(!format!("{answer:?}").contains(SECRET), "{path}");
    }
    // Another server, and an unrelated box.
    let mut other = spec("other", &token);
    other["env"] = json!({});
    add(&daemon, &other);
    let look = "cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'; env; find / -path '*mc[p]/secrets*' 2>/dev/null";
    for session in ["mcp-other", "unrelated"] {
        let mut looking = daemon.command(&["exec", session, "--", "sh", "-c", look]);
        let output = looking.env("BOXWOOD_OPERATOR", "1").output();
        let output = CommandResult::from(output.expect("boxwood runs"));
        assert!(output.stdout.contains("PATH="), "it looked: {output:?}");
        assert!(!output.stdout.contains(SECRET), "{session}");
        assert!(
            !output.stdout.contains("mcp/secrets"),
            "{session}: {output:?}"
        );
    }
    let log = fs::read_to_string(daemon.directory().join("log")).expect("a log");
    assert!(log.contains("DEBUG"), "everything was written down");
    assert!(!log.contains(SECRET));
}

#[test]
fn a_server_that_is_killed_is_there_again() {
    let token = token("hosted-crash");
    let daemon = start(fresh(), &[]);
    add(&daemon, &spec("tiny", &token));
    let first = pids(&token);
    let killed = std::process::Command::new("kill")
        .args(["-9", &first[0].to_string()])
        .status();
    assert!(killed.expect("kill runs").success());
    wait_until("another process", || {
        let now = pids(&token);
        !now.is_empty() && now != first
    });
    connected(&daemon, "tiny");
    assert_eq!(call(&daemon, "tiny", "echo"), "{\"word\": \"hello\"}");
}

/// From the package index, for the user of the daemon: the copies and caches of an ordinary user are
/// owned and mounted in other ways than those of root.
#[test]
fn dependencies_are_installed_once_and_the_next_start_needs_no_network() {
    let daemon = start(fresh(), &[]);
    let spec = json!({
        "name": "time",
        "command": "uvx",
        "args": ["mcp-server-time@2026.10.19"],
        "box": {"startup_timeout_sec": 180},
    });
    let added = post(&daemon, "/v1/mcp/servers", &spec);
    assert_eq!(added.status, 201, "{added:?}");
    let runtime = connected_within(&daemon, "time", Duration::from_mins(3));
    assert!(phases(&runtime).contains(&"dep_install"), "{runtime}");
    let offline = json!({"box": {"network": "off"}});
    let edited = request(
        &daemon,
        "PATCH",
        "/v1/mcp/servers/time",
        &[],
        Some(&offline),
    );
    assert_eq!(edited.status, 200, "{edited:?}");
    let again = post(&daemon, "/v1/mcp/servers/time/restart", &json!({}));
    assert!((200..300).contains(&again.status), "{again:?}");
    let runtime = connected(&daemon, "time");
    let tools = get(&daemon, "/v1/mcp/servers/time").json();
    assert!(tools.to_string().contains("get_current_time"), "{runtime}");
    let session = get(&daemon, "/v1/sessions/mcp-time").json();
    assert_eq!(session["network"], "off", "{session}");
}

fn phases(runtime: &Value) -> Vec<&str> {
    let steps = runtime["steps"].as_array();
    let phases = steps.into_iter().flatten().map(|step| &step["phase"]);
    phases.filter_map(Value::as_str).collect()
}
