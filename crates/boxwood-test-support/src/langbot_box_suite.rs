//! Integration tests of LangBot Box, which every daemon must pass.
//!
//! One intended difference: a timeout ends the command, and the session remains. Each function uses its own sessions,
//! so they may run concurrently.

use std::time::{Duration, Instant};

use futures_util::{SinkExt as _, StreamExt as _};
use reqwest::{Client, StatusCode};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

/// Runs all tests, one after the other.
pub async fn run(base_url: &str) {
    run_portable(base_url).await;
    offline_cannot_reach_network(base_url).await;
}

/// Runs the tests that also work without isolation.
pub async fn run_portable(base_url: &str) {
    managed_process_start_and_query(base_url).await;
    ws_stdio_attach_echo(base_url).await;
    delete_session_cleans_up(base_url).await;
    get_session_returns_details(base_url).await;
    process_exit_detected(base_url).await;
    own_sessions_survive_status_calls(base_url).await;
    exec_simple_command(base_url).await;
    session_persists_files(base_url).await;
    timeout_kills_command_and_session_remains(base_url).await;
}

/// A client like that of LangBot Box: full specs, ids in paths, errors by code.
struct LangBotClient {
    http: Client,
    base: String,
}

impl LangBotClient {
    fn new(base_url: &str) -> Self {
        Self {
            http: Client::new(),
            base: base_url.trim_end_matches('/').to_owned(),
        }
    }

    async fn call(
        &self,
        method: reqwest::Method,
        path: &str,
        body: Option<Value>,
    ) -> (StatusCode, Value) {
        let mut request = self.http.request(method, format!("{}{path}", self.base));
        if let Some(body) = body {
            request = request
                .header("content-type", "application/json")
                .body(body.to_string());
        }
        let response = request.send().await.expect("the daemon answers");
        let status = response.status();
        let text = response.text().await.expect("a body");
        let value = serde_json::from_str(&text)
            .unwrap_or_else(|error| panic!("{path}: `{text}` is not JSON: {error}"));
        (status, value)
    }

    async fn get(&self, path: &str) -> (StatusCode, Value) {
        self.call(reqwest::Method::GET, path, None).await
    }

    async fn create(&self, id: &str) -> Value {
        let path = format!("/v1/sessions/{id}");
        let (status, session) = self
            .call(reqwest::Method::POST, &path, Some(full_spec(id, "")))
            .await;
        assert_eq!(status, StatusCode::CREATED, "{session}");
        session
    }

    async fn exec(&self, id: &str, cmd: &str, timeout_sec: u64) -> Value {
        let mut spec = full_spec(id, cmd);
        spec["timeout_sec"] = timeout_sec.into();
        let path = format!("/v1/sessions/{id}/exec");
        let (status, result) = self.call(reqwest::Method::POST, &path, Some(spec)).await;
        assert_eq!(status, StatusCode::OK, "{result}");
        result
    }

    async fn start(&self, id: &str, command: &str, args: &[&str]) -> Value {
        let spec = json!({"command": command, "args": args, "env": {}, "cwd": "/tmp"});
        let path = format!("/v1/sessions/{id}/managed-process");
        let (status, process) = self.call(reqwest::Method::POST, &path, Some(spec)).await;
        assert_eq!(status, StatusCode::CREATED, "{process}");
        process
    }

    async fn delete(&self, id: &str) {
        let path = format!("/v1/sessions/{id}");
        let (status, answer) = self.call(reqwest::Method::DELETE, &path, None).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        assert_eq!(answer, json!({"deleted": id}));
    }
}

/// Every field, as clients of LangBot Box send them.
fn full_spec(id: &str, cmd: &str) -> Value {
    json!({
        "cmd": cmd,
        "workdir": "/tmp",
        "timeout_sec": 30,
        "network": "off",
        "session_id": id,
        "env": {},
        "image": "rockchin/langbot-sandbox:latest",
        "host_path": null,
        "host_path_mode": "rw",
        "mount_path": "/workspace",
        "extra_mounts": [],
        "persistent": false,
        "cpus": 1.0,
        "memory_mb": 512,
        "pids_limit": 128,
        "read_only_rootfs": true,
        "workspace_quota_mb": 0
    })
}

pub async fn managed_process_start_and_query(base_url: &str) {
    let client = LangBotClient::new(base_url);
    let id = "suite-managed-query";
    client.create(id).await;
    let started = client
        .start(id, "sh", &["-c", "while true; do sleep 1; done"])
        .await;
    assert_eq!(started["status"], "running");
    let (status, process) = client
        .get(&format!("/v1/sessions/{id}/managed-process"))
        .await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(process["status"], "running");
    assert_eq!(process["command"], "sh");
    client.delete(id).await;
}

pub async fn ws_stdio_attach_echo(base_url: &str) {
    let client = LangBotClient::new(base_url);
    let id = "suite-attach-echo";
    client.create(id).await;
    client.start(id, "cat", &[]).await;
    let url = format!(
        "{}/v1/sessions/{id}/managed-process/ws",
        client.base.replacen("http", "ws", 1)
    );
    let (mut socket, _) = tokio_tungstenite::connect_async(url)
        .await
        .expect("the relay is open");
    socket
        .send(Message::text("hello from test"))
        .await
        .expect("sent");
    let echo = async {
        loop {
            match socket.next().await.expect("open").expect("a frame") {
                Message::Text(text) => return text.to_string(),
                Message::Close(frame) => panic!("closed: {frame:?}"),
                _ => {}
            }
        }
    };
    let echo = tokio::time::timeout(Duration::from_secs(20), echo)
        .await
        .expect("an echo within 20 s");
    assert_eq!(echo, "hello from test");
    socket.close(None).await.expect("closed");
    client.delete(id).await;
}

pub async fn delete_session_cleans_up(base_url: &str) {
    let client = LangBotClient::new(base_url);
    let id = "suite-delete";
    client.create(id).await;
    client.delete(id).await;
    let (status, answer) = client.get(&format!("/v1/sessions/{id}")).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert_eq!(answer["error"]["code"], "session_not_found");
    assert_eq!(
        answer["error"]["message"],
        format!("session {id} not found")
    );
}

pub async fn get_session_returns_details(base_url: &str) {
    let client = LangBotClient::new(base_url);
    let id = "suite-details";
    client.create(id).await;
    let path = format!("/v1/sessions/{id}");
    let (status, session) = client.get(&path).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(session["session_id"], id);
    assert_eq!(session["image"], "rockchin/langbot-sandbox:latest");
    assert!(session.get("managed_process").is_none(), "{session}");
    client
        .start(id, "sh", &["-c", "while true; do sleep 1; done"])
        .await;
    let (_, session) = client.get(&path).await;
    assert_eq!(session["managed_process"]["status"], "running");
    assert_eq!(session["managed_processes"]["default"]["status"], "running");
    client.delete(id).await;
}

pub async fn process_exit_detected(base_url: &str) {
    let client = LangBotClient::new(base_url);
    let id = "suite-exit";
    client.create(id).await;
    client.start(id, "sh", &["-c", "echo done && exit 0"]).await;
    let path = format!("/v1/sessions/{id}/managed-process");
    let deadline = Instant::now() + Duration::from_secs(30);
    let process = loop {
        let (_, process) = client.get(&path).await;
        if process["status"] == "exited" || Instant::now() > deadline {
            break process;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(process["status"], "exited");
    assert_eq!(process["exit_code"], 0);
    client.delete(id).await;
}

/// `orphan_cleanup_preserves_own_containers` in LangBot Box.
pub async fn own_sessions_survive_status_calls(base_url: &str) {
    let client = LangBotClient::new(base_url);
    let id = "suite-own";
    client.create(id).await;
    for _ in 0..3 {
        let (status, answer) = client.get("/v1/status").await;
        assert_eq!(status, StatusCode::OK);
        assert!(answer["active_sessions"].as_u64() >= Some(1), "{answer}");
    }
    let (_, sessions) = client.get("/v1/sessions").await;
    let listed = sessions.as_array().expect("a list");
    assert!(listed.iter().any(|session| session["session_id"] == id));
    client.delete(id).await;
}

pub async fn exec_simple_command(base_url: &str) {
    let client = LangBotClient::new(base_url);
    let id = "suite-exec";
    let result = client.exec(id, "echo hello; echo oops >&2", 30).await;
    assert_eq!(result["session_id"], id);
    assert_eq!(result["status"], "completed");
    assert_eq!(result["exit_code"], 0);
    assert_eq!(result["stdout"], "hello\n");
    assert_eq!(result["stderr"], "oops\n");
    assert!(result["duration_ms"].is_u64());
    let result = client.exec(id, "exit 3", 30).await;
    assert_eq!(result["exit_code"], 3);
    client.delete(id).await;
}

pub async fn session_persists_files(base_url: &str) {
    let client = LangBotClient::new(base_url);
    let id = "suite-files";
    let file = "/tmp/langbot-box-suite-persists";
    let written = client.exec(id, &format!("echo kept > {file}"), 30).await;
    assert_eq!(written["exit_code"], 0, "{written}");
    let read = client.exec(id, &format!("cat {file}; rm {file}"), 30).await;
    assert_eq!(read["stdout"], "kept\n");
    client.delete(id).await;
}

pub async fn timeout_kills_command_and_session_remains(base_url: &str) {
    let client = LangBotClient::new(base_url);
    let id = "suite-timeout";
    let started = Instant::now();
    let result = client.exec(id, "sleep 30", 3).await;
    let elapsed = started.elapsed();
    assert_eq!(result["status"], "timed_out");
    assert_eq!(result["exit_code"], Value::Null);
    assert_eq!(result["reason"]["kind"], "timeout");
    assert!(
        (Duration::from_secs(3)..Duration::from_secs(25)).contains(&elapsed),
        "{elapsed:?}"
    );
    let (status, _) = client.get(&format!("/v1/sessions/{id}")).await;
    assert_eq!(status, StatusCode::OK, "the session outlives its command");
    let result = client.exec(id, "echo alive", 30).await;
    assert_eq!(result["stdout"], "alive\n");
    client.delete(id).await;
}

/// Needs a real box that enforces `network: off`.
pub async fn offline_cannot_reach_network(base_url: &str) {
    const TRY: &str = r#"
        echo trying
        if command -v python3 >/dev/null; then
            python3 -c 'import socket; socket.create_connection(("1.1.1.1", 80), 3); print("reached")'
        elif command -v wget >/dev/null; then
            wget -q -T 3 -O /dev/null http://1.1.1.1/ && echo reached
        else
            echo "neither python3 nor wget"
        fi
        ls /sys/class/net 2>/dev/null; cat /proc/net/route
    "#;
    let client = LangBotClient::new(base_url);
    let id = "suite-offline";
    let result = client.exec(id, TRY, 20).await;
    let stdout = result["stdout"].as_str().expect("text");
    assert!(stdout.starts_with("trying\n"), "{result}");
    assert!(!stdout.contains("reached"), "{result}");
    assert!(!stdout.contains("neither"), "{result}");
    // There is no interface besides loopback, and no route.
    let routes = stdout.lines().filter(|line| line.contains("eth")).count();
    assert_eq!(routes, 0, "{result}");
    client.delete(id).await;
}
