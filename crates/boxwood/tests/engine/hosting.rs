//! An MCP server in a container, from the copy of its directory to its removal.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::daemon::{Daemon, DaemonSettings};
use crate::request::ask;
use crate::traces::{marker, running};
use crate::waiting::{SETTLED, until};

const TINY: &str = include_str!("../../../boxwood-server/tests/it/tiny_server.py");
const SERVER: &str = "/v1/mcp/servers/tiny";

/// The server works, survives a killed daemon, and leaves nothing behind when it is removed.
/// The image has Python.
pub(crate) async fn a_server_is_hosted_to_its_end(settings: DaemonSettings, image: Option<String>) {
    let project = tempfile::tempdir().expect("a directory");
    let script = project.path().join("server.py");
    fs::write(&script, TINY).expect("a server");
    let roots = project.path().display().to_string();
    let settings = settings.with("BOXWOOD_MOUNTS__ALLOWED_ROOTS", roots);
    let marker = marker("hosted");

    let first = Daemon::start(&settings).await;
    let spec = json!({
        "name": "tiny",
        "command": "python3",
        "args": [script, marker],
        "env": {"API_KEY": "four"},
        "box": {"network": "off", "image": image},
    });
    let (status, added) = ask(&first, "POST", "/v1/mcp/servers", Some(&spec)).await;
    assert_eq!(status, 201, "{added}");
    connected(&first).await;
    let (_, session) = ask(&first, "GET", "/v1/sessions/mcp-tiny", None).await;
    assert_eq!(
        session["backend_name"],
        json!(settings.backend),
        "{session}"
    );
    assert_eq!(call(&first, "secret").await, "4");
    let born = call(&first, "pid").await;
    assert_eq!(running(&marker), 1);

    let directory = first.kill().await;
    assert_eq!(running(&marker), 1, "it goes on without the daemon");
    let second = Daemon::start_in(Arc::clone(&directory), &settings).await;
    connected(&second).await;
    assert_eq!(call(&second, "pid").await, born, "it was started again");

    let (status, response) = ask(&second, "POST", &format!("{SERVER}/restart"), None).await;
    assert!((200..300).contains(&status), "{response}");
    connected(&second).await;
    assert_eq!(call(&second, "secret").await, "4");

    let (status, response) = ask(&second, "DELETE", SERVER, None).await;
    assert!((200..300).contains(&status), "{response}");
    until("its processes are gone", || running(&marker) == 0).await;
    let (status, _) = ask(&second, "GET", "/v1/sessions/mcp-tiny", None).await;
    assert_eq!(status, 404);
    until("its copy is gone", || {
        let copies = fs::read_dir(second.state_dir().join("mcp/work"));
        copies.into_iter().flatten().next().is_none()
    })
    .await;
    second.stop().await;
}

async fn connected(daemon: &Daemon) {
    let begin = Instant::now();
    loop {
        let (_, info) = ask(daemon, "GET", SERVER, None).await;
        let runtime = &info["runtime"];
        if runtime["status"] == "connected" {
            return;
        }
        assert_ne!(runtime["status"], "error", "{runtime}");
        assert!(begin.elapsed() < SETTLED, "{runtime}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn call(daemon: &Daemon, tool: &str) -> String {
    let path = format!("{SERVER}/tools/{tool}");
    let (status, answer) = ask(daemon, "POST", &path, Some(&json!({"arguments": {}}))).await;
    assert_eq!(status, 200, "{answer}");
    let text = answer["content"][0]["text"].as_str();
    text.map_or_else(|| unexpected(&answer), str::to_owned)
}

fn unexpected(answer: &Value) -> String {
    panic!("a tool says something: {answer}")
}
