//! MCP servers that the daemon hosts, over HTTP. Their programs are real, but run without isolation.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use boxwood_test_support::FakeBackend;
use boxwood_test_support::daemon::Daemon;
use futures_util::StreamExt as _;
use reqwest::{Client, Method};
use serde_json::{Value, json};

use crate::api::{Api, answer, refused};

/// Given as an argument, so that no directory of the host is needed.
const TINY: &str = include_str!("../tiny_server.py");

const SECRET: &str = "s3cret-value-of-a-key";

/// Starts the server through a shell. For `python3` as the command, hosting would first locate the interpreter in the
/// box, which needs a cache directory that the fake box does not have.
fn started() -> [&'static str; 3] {
    ["-c", "exec python3 -u -c \"$0\"", TINY]
}

pub(crate) fn tiny(name: &str) -> Value {
    json!({"name": name, "command": "sh", "args": started()})
}

/// A server that never says anything.
fn silent(name: &str) -> Value {
    json!({"name": name, "command": "sleep", "args": ["600"]})
}

async fn status(api: &Api, name: &str) -> Value {
    let (status, info) = api.get(&format!("/v1/mcp/servers/{name}")).await;
    assert_eq!(status, 200, "{info}");
    info["runtime"].clone()
}

pub(crate) async fn connected(api: &Api, name: &str) -> Value {
    eventually("the server is connected", || async {
        let runtime = status(api, name).await;
        assert_ne!(runtime["status"], "error", "{runtime}");
        runtime["status"] == "connected"
    })
    .await;
    status(api, name).await
}

pub(crate) async fn added(api: &Api, spec: &Value) -> Value {
    let (status, info) = api.post("/v1/mcp/servers", spec).await;
    assert_eq!(status, 201, "{info}");
    connected(api, spec["name"].as_str().expect("a name")).await
}

async fn call(api: &Api, name: &str, tool: &str, arguments: Value) -> Value {
    let path = format!("/v1/mcp/servers/{name}/tools/{tool}");
    let (status, result) = api.post(&path, &json!({"arguments": arguments})).await;
    assert_eq!(status, 200, "{result}");
    result
}

/// A server may fail a few times before it counts as failed, on a machine that may be busy.
pub(crate) async fn eventually<F: Future<Output = bool>>(what: &str, mut check: impl FnMut() -> F) {
    let begin = std::time::Instant::now();
    while !check().await {
        assert!(
            begin.elapsed() < Duration::from_secs(90),
            "waited too long: {what}"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn lines(text: &str) -> Vec<Value> {
    let lines = text.lines().filter(|line| !line.is_empty());
    lines
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

#[tokio::test]
async fn settings_that_a_profile_overrides_are_reported() {
    let api = Api::start().await;
    let mut spec = tiny("tight");
    spec["box"] = json!({"profile": "offline_readonly"});
    let runtime = added(&api, &spec).await;
    let (_, info) = api.get("/v1/mcp/servers/tight").await;
    assert_eq!(info["box"]["network"], "on", "what was asked: {info}");
    let (_, session) = api.get("/v1/sessions/mcp-tight").await;
    assert_eq!(session["network"], "off", "what it has: {session}");
    let locked =
        "network is locked to off by profile `offline_readonly`; on was asked for".to_owned();
    let notices = runtime["notices"].as_array().expect("a list");
    assert!(notices.contains(&Value::from(locked)), "{runtime}");
    let free = added(&api, &tiny("free")).await;
    assert_eq!(free["notices"], Value::Null, "{free}");
}

#[tokio::test]
async fn a_server_is_added_called_and_removed() {
    let api = Api::start().await;
    let runtime = added(&api, &tiny("tiny")).await;
    assert_eq!(runtime["box_session_id"], "mcp-tiny");
    assert_eq!(runtime["box_enabled"], true);
    assert_eq!(runtime["server_info"]["name"], "tiny");
    assert_eq!(runtime["tool_count"], 5);
    let (_, session) = api.get("/v1/sessions/mcp-tiny").await;
    assert_eq!(session["persistent"], true, "{session}");

    let result = call(&api, "tiny", "echo", json!({"a": [1, "ü"]})).await;
    assert_eq!(result["content"][0]["text"], "{\"a\": [1, \"\\u00fc\"]}");
    assert_eq!(result["x-kept"], 1, "what we do not know is kept");
    let failed = call(&api, "tiny", "fail", json!({})).await;
    assert_eq!(failed["isError"], true);
    // Errors of the caller and of the server have different codes.
    for (tool, status, code) in [
        ("nope", 400, "validation_error"),
        ("broken", 502, "backend_unavailable"),
    ] {
        let path = format!("/v1/mcp/servers/tiny/tools/{tool}");
        let answer = api.post(&path, &json!({})).await;
        refused(&answer, status, code);
        let error = &answer.1["error"];
        assert_eq!(error["phase"], "tool_call", "{error}");
        let message = error["message"].as_str().expect("text");
        assert!(message.contains("refused the call"), "{message}");
    }

    let (_, tools) = api.get("/v1/mcp/servers/tiny/tools").await;
    assert_eq!(tools[0]["name"], "echo", "{tools}");
    let (_, logs) = api.get("/v1/mcp/servers/tiny/logs").await;
    let stderr = logs["stderr"].as_str().expect("text");
    assert!(stderr.contains("tiny server is up"), "{logs}");
    let protocol = logs["protocol"].to_string();
    assert!(protocol.contains("tools/call"), "{logs}");
    assert!(!protocol.contains("u00fc"), "no arguments: {logs}");

    let (status, removed) = api.delete("/v1/mcp/servers/tiny").await;
    assert_eq!(
        (status.as_u16(), &removed),
        (200, &json!({"removed": "tiny"}))
    );
    refused(&api.get("/v1/mcp/servers/tiny").await, 404, "not_found");
    refused(
        &api.get("/v1/sessions/mcp-tiny").await,
        404,
        "session_not_found",
    );
    for directory in ["servers", "secrets", "greetings", "work", "boxes"] {
        let path = api.daemon.state_dir().join("mcp").join(directory);
        let left = std::fs::read_dir(path).into_iter().flatten().count();
        assert_eq!(left, 0, "{directory}");
    }
}

#[tokio::test]
async fn it_is_stopped_started_edited_and_replaced() {
    let api = Api::start().await;
    added(&api, &tiny("tiny")).await;
    let pid = call(&api, "tiny", "pid", json!({})).await;
    let at = |order: &str| format!("/v1/mcp/servers/tiny/{order}");
    let (code, info) = api.post(&at("restart"), &json!({})).await;
    assert_eq!(code, 200, "{info}");
    connected(&api, "tiny").await;
    assert_ne!(call(&api, "tiny", "pid", json!({})).await, pid);

    let (code, info) = api.post(&at("stop"), &json!({})).await;
    assert_eq!(code, 200, "{info}");
    assert_eq!(status(&api, "tiny").await["status"], "stopped");
    let path = "/v1/mcp/servers/tiny/tools/echo";
    refused(&api.post(path, &json!({})).await, 400, "validation_error");
    let (code, _) = api.post(&at("start"), &json!({})).await;
    assert_eq!(code, 200);
    connected(&api, "tiny").await;

    let edit = json!({"tools": {"deny": ["hid*"]}});
    let request = api.request(Method::PATCH, "/v1/mcp/servers/tiny");
    let (code, info) = answer(request.json(&edit)).await;
    assert_eq!(code, 200, "{info}");
    assert_eq!(connected(&api, "tiny").await["tool_count"], 4);
    let path = "/v1/mcp/servers/tiny/tools/hidden";
    refused(&api.post(path, &json!({})).await, 404, "not_found");

    let put = |name: &str, spec: &Value| {
        let path = format!("/v1/mcp/servers/{name}");
        answer(api.request(Method::PUT, &path).json(spec))
    };
    let (code, info) = put("tiny", &tiny("tiny")).await;
    assert_eq!(code, 200, "{info}");
    assert_eq!(connected(&api, "tiny").await["tool_count"], 5);
    refused(&put("tiny", &tiny("other")).await, 400, "validation_error");
    let (code, _) = put("second", &tiny("second")).await;
    assert_eq!(code, 201);
    connected(&api, "second").await;

    let request = api.request(Method::PATCH, "/v1/mcp/servers/second");
    let (code, _) = answer(request.json(&json!({"enabled": false}))).await;
    assert_eq!(code, 200);
    assert_eq!(status(&api, "second").await["status"], "disabled");
    let (_, list) = api.get("/v1/mcp/servers").await;
    let names: Vec<_> = list["servers"].as_array().expect("a list").iter().collect();
    assert_eq!(names.len(), 2, "{list}");
}

#[tokio::test]
async fn invalid_requests_are_refused() {
    let api = Api::start().await;
    let servers = "/v1/mcp/servers";
    let post = |spec: Value| {
        let api = &api;
        async move { api.post(servers, &spec).await }
    };
    let wrong = [
        json!({}),
        json!({"name": "a"}),
        json!({"name": "a", "command": "x", "commands": "y"}),
        json!({"name": "_all", "command": "x"}),
        json!({"name": "a/b", "command": "x"}),
        json!({"name": "a", "command": ""}),
        json!({"name": "a", "command": "x", "env": {"A": 1}}),
        json!({"name": "a", "command": "x", "box": {"netwrok": "on"}}),
        json!({"name": "a", "command": "x", "env": {"A=B": "c"}}),
        json!([]),
    ];
    for spec in wrong {
        refused(&post(spec).await, 400, "validation_error");
    }
    added(&api, &tiny("a")).await;
    refused(&post(tiny("a")).await, 409, "session_conflict");
    for (method, path) in [
        (Method::GET, "/v1/mcp/servers/unknown"),
        (Method::DELETE, "/v1/mcp/servers/unknown"),
        (Method::PATCH, "/v1/mcp/servers/unknown"),
        (Method::POST, "/v1/mcp/servers/unknown/start"),
        (Method::POST, "/v1/mcp/servers/unknown/stop"),
        (Method::POST, "/v1/mcp/servers/unknown/restart"),
        (Method::POST, "/v1/mcp/servers/unknown/tools/x"),
        (Method::GET, "/v1/mcp/servers/unknown/tools"),
        (Method::GET, "/v1/mcp/servers/unknown/logs"),
        (Method::GET, "/v1/mcp/servers/unknown/progress"),
    ] {
        refused(&answer(api.request(method, path)).await, 404, "not_found");
    }
    refused(
        &api.get("/v1/mcp/servers/..%2Fx").await,
        400,
        "validation_error",
    );
    let outside =
        json!({"name": "b", "command": "x", "box": {"host_path": "/usr", "host_path_mode": "rw"}});
    let (code, info) = post(outside).await;
    assert_eq!(code, 201, "{info}");
    eventually("policy says no", || async {
        let runtime = status(&api, "b").await;
        let message = runtime["error_message"].as_str().unwrap_or_default();
        runtime["status"] == "error" && message.contains("allowed_mount_roots")
    })
    .await;
}

#[tokio::test]
async fn values_of_variables_are_shown_nowhere() {
    let api = Api::start().await;
    let mut spec = tiny("tiny");
    spec["env"] = json!({"API_KEY": SECRET});
    added(&api, &spec).await;
    let length = call(&api, "tiny", "secret", json!({})).await;
    assert_eq!(length["content"][0]["text"], SECRET.len().to_string());
    let (_, info) = api.get("/v1/mcp/servers/tiny").await;
    assert_eq!(info["env_keys"], json!(["API_KEY"]));
    for path in [
        "/v1/mcp/servers",
        "/v1/mcp/servers/tiny",
        "/v1/mcp/servers/tiny/logs",
        "/v1/sessions",
        "/v1/sessions/mcp-tiny",
        // Only the operator may read these, and they have no secrets either.
        "/v1/sessions/mcp-tiny/processes",
        "/v1/sessions/mcp-tiny/managed-process/main",
        "/v1/sessions/mcp-tiny/managed-process/main/logs",
        "/v1/sessions/mcp-tiny/execs",
    ] {
        let looking = api.request(Method::GET, path);
        let (code, body) = answer(looking.header("boxwood-operator", "1")).await;
        assert_eq!(code, 200, "{path}: {body}");
        assert!(!body.to_string().contains(SECRET), "{path}: {body}");
    }
    let home = api.daemon.state_dir().join("mcp");
    let stored = std::fs::read_to_string(home.join("servers/tiny.json")).expect("stored");
    assert!(!stored.contains(SECRET));
    let secret = std::fs::metadata(home.join("secrets/tiny.json")).expect("stored");
    assert_eq!(secret.permissions().mode() & 0o777, 0o600);
}

#[tokio::test]
async fn progress_comes_in_lines_and_ends() {
    let api = Api::start().await;
    let (code, _) = api.post("/v1/mcp/servers", &tiny("tiny")).await;
    assert_eq!(code, 201);
    let path = "/v1/mcp/servers/tiny/progress";
    let response = api
        .request(Method::GET, path)
        .send()
        .await
        .expect("an answer");
    assert_eq!(response.headers()["content-type"], "application/x-ndjson");
    let progress = lines(&response.text().await.expect("a body"));
    let last = progress.last().expect("a line");
    assert_eq!(last["type"], "done", "{progress:?}");
    assert_eq!(last["runtime"]["status"], "connected", "{progress:?}");
    let phases: Vec<_> = progress
        .iter()
        .filter_map(|line| line["phase"].as_str())
        .collect();
    for phase in [
        "session_create",
        "process_start",
        "relay_connect",
        "mcp_init",
    ] {
        assert!(phases.contains(&phase), "{phases:?}");
    }
}

#[tokio::test]
async fn a_progress_stream_does_not_delay_the_shutdown() {
    let api = Api::start_with(|config| config.http.drain_sec = 60).await;
    api.post("/v1/mcp/servers", &silent("silent")).await;
    let path = "/v1/mcp/servers/silent/progress";
    let response = api
        .request(Method::GET, path)
        .send()
        .await
        .expect("an answer");
    let mut chunks = response.bytes_stream();
    assert!(chunks.next().await.is_some(), "it is on its way");
    let stopped = std::time::Instant::now();
    api.daemon.ask_to_stop();
    while chunks.next().await.is_some() {}
    assert!(stopped.elapsed() < Duration::from_secs(30));
    let Api { daemon, .. } = api;
    daemon.stop().await;
}

#[tokio::test]
async fn a_test_leaves_nothing_behind() {
    let api = Api::start().await;
    let test = |accept: &'static str, spec: Value| {
        api.request(Method::POST, "/v1/mcp/test")
            .header("accept", accept)
            .json(&spec)
            .send()
    };
    let answered = test("application/json", tiny("tiny"))
        .await
        .expect("an answer");
    let result: Value = answered.json().await.expect("JSON");
    assert_eq!(result["ok"], true, "{result}");
    assert_eq!(result["runtime"]["tool_count"], 5);
    let answered = test("*/*", tiny("tiny")).await.expect("an answer");
    let progress = lines(&answered.text().await.expect("a body"));
    assert_eq!(
        progress.last().expect("a line")["type"],
        "done",
        "{progress:?}"
    );

    let broken = json!({"name": "x", "command": "sh", "args": ["-c", "echo no luck >&2; exit 1"]});
    let answered = test("application/json", broken).await.expect("an answer");
    let result: Value = answered.json().await.expect("JSON");
    assert_eq!(result["ok"], false, "{result}");
    assert_eq!(result["runtime"]["error_phase"], "mcp_init", "{result}");
    assert!(
        result["log"].as_str().expect("text").contains("no luck"),
        "{result}"
    );

    let answered = test("*/*", json!({"name": "x", "command": ""}))
        .await
        .expect("an answer");
    assert_eq!(answered.status(), 400);
    // A client that disconnects in the middle.
    let answered = test("*/*", silent("silent")).await.expect("an answer");
    let mut chunks = answered.bytes_stream();
    assert!(chunks.next().await.is_some());
    drop(chunks);
    eventually("every box is gone", || async {
        let (_, sessions) = api.get("/v1/sessions").await;
        sessions["sessions"]
            .as_array()
            .or(sessions.as_array())
            .is_some_and(Vec::is_empty)
    })
    .await;
    let (_, list) = api.get("/v1/mcp/servers").await;
    assert_eq!(list, json!({"servers": []}));
}

#[tokio::test]
async fn a_stored_server_is_tried_beside_the_one_that_runs() {
    let api = Api::start().await;
    let running = added(&api, &tiny("tiny")).await;
    let test = |name: &str| {
        let path = format!("/v1/mcp/servers/{name}/test");
        let request = api.request(Method::POST, &path);
        request.header("accept", "application/json").send()
    };
    let result: Value = match test("tiny").await {
        Ok(answered) => answered.json().await.expect("JSON"),
        Err(error) => panic!("{error}"),
    };
    assert_eq!(result["ok"], true, "{result}");
    assert_ne!(
        result["runtime"]["box_session_id"],
        running["box_session_id"]
    );
    assert_eq!(status(&api, "tiny").await["steps"], running["steps"]);

    // With its secrets, which are never shown. A disabled server is not started.
    let script =
        "echo the key is $KEY >&2; test \"$KEY\" = hunter2 || exit 1; exec python3 -u -c \"$0\"";
    let disabled = json!({"name": "kept", "command": "sh", "args": ["-c", script, TINY],
        "env": {"KEY": "hunter2"}, "enabled": false});
    let (code, info) = api.post("/v1/mcp/servers", &disabled).await;
    assert_eq!(code, 201, "{info}");
    let answered = test("kept").await.expect("an answer");
    let result: Value = answered.json().await.expect("JSON");
    assert_eq!(result["ok"], true, "{result}");
    assert!(result["log"].to_string().contains("the key is"), "{result}");
    assert!(!result.to_string().contains("hunter2"), "{result}");
    assert_eq!(
        status(&api, "kept").await["status"],
        info["runtime"]["status"]
    );
    let missing = test("missing").await.expect("an answer");
    assert_eq!(missing.status(), 404);
}

#[tokio::test]
async fn a_document_is_imported_as_it_is() {
    let api = Api::start().await;
    let document = json!({"mcpServers": {
        "tiny": {"command": "sh", "args": started()},
        "web": {"url": "https://example.org/mcp"},
    }});
    let (code, imported) = api
        .post("/v1/mcp/import", &json!({"document": document}))
        .await;
    assert_eq!(code, 200, "{imported}");
    assert_eq!(imported["added"], json!(["tiny"]), "{imported}");
    assert_eq!(imported["skipped"][0]["name"], "web", "{imported}");
    connected(&api, "tiny").await;
    let wrong = api.post("/v1/mcp/import", &json!({"document": 7})).await;
    refused(&wrong, 400, "validation_error");
}

#[tokio::test]
async fn a_daemon_without_hosting_says_so() {
    let api = Api::start_with(|config| config.mcp.enabled = false).await;
    let listed = api.get("/v1/mcp/servers").await;
    refused(&listed, 503, "backend_unavailable");
    let hint = listed.1["error"]["hint"].as_str().expect("a hint");
    assert!(hint.contains("[mcp]"), "{hint}");
    let added = api.post("/v1/mcp/servers", &tiny("tiny")).await;
    refused(&added, 503, "backend_unavailable");
    refused(
        &api.post("/mcp/tiny", &json!({})).await,
        503,
        "backend_unavailable",
    );
    assert!(!api.daemon.state_dir().join("mcp").exists());
}

#[tokio::test]
async fn without_boxes_a_server_is_refused_in_its_own_phase() {
    let api = Api::start_with(|config| config.agent.enabled = false).await;
    api.post("/v1/mcp/servers", &tiny("tiny")).await;
    eventually("it is refused", || async {
        let runtime = status(&api, "tiny").await;
        runtime["status"] == "error" && runtime["error_phase"] == "box_unavailable"
    })
    .await;
    let runtime = status(&api, "tiny").await;
    assert_eq!(runtime["error_message"], "box_disabled_in_config");

    let backend = FakeBackend::new();
    backend.break_down("no kernel today", "get one");
    let api = Api {
        daemon: Daemon::start(backend.clone()).await,
        backend,
        http: Client::new(),
    };
    api.post("/v1/mcp/servers", &tiny("tiny")).await;
    eventually("it is refused", || async {
        let runtime = status(&api, "tiny").await;
        runtime["error_phase"] == "box_unavailable"
    })
    .await;
}

#[tokio::test]
async fn events_and_metrics_report_the_status_of_servers() {
    let api = Api::start().await;
    let events = api.request(Method::GET, "/v1/events").send().await;
    let mut events = events.expect("an answer").bytes_stream();
    added(&api, &tiny("tiny")).await;
    let broken = json!({"name": "broken", "command": "/nonexistent/program", "box": {"startup_timeout_sec": 1}});
    api.post("/v1/mcp/servers", &broken).await;
    let mut received = String::new();
    let hearing = async {
        while !(received.contains("event: mcp_connected") && received.contains("event: mcp_failed"))
        {
            let chunk = events.next().await.expect("more").expect("bytes");
            received.push_str(&String::from_utf8_lossy(&chunk));
        }
    };
    tokio::time::timeout(Duration::from_mins(1), hearing)
        .await
        .expect("both events");
    assert!(
        received.contains("\"session_id\":\"mcp-tiny\""),
        "{received}"
    );
    let metrics = api
        .request(Method::GET, "/metrics")
        .send()
        .await
        .expect("an answer");
    let text = metrics.text().await.expect("text");
    assert!(
        text.contains("boxwood_mcp_servers{status=\"connected\"} 1"),
        "{text}"
    );
    assert!(
        text.contains("boxwood_mcp_servers{status=\"error\"} 1"),
        "{text}"
    );
}
