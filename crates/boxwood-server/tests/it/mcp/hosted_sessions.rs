//! Access to the boxes of hosted MCP servers through every API of a session.

use futures_util::SinkExt as _;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;

use crate::api::{Api, Socket, answer, next_text, refused};
use crate::mcp::servers::{added, tiny};

const SECRET: &str = "s3cret-in-the-box";
const OPERATOR: &str = "boxwood-operator";

/// A daemon with one server, whose box has a secret in it.
async fn with_server() -> Api {
    let api = Api::start().await;
    let mut spec = tiny("tiny");
    spec["env"] = json!({"TOKEN": SECRET});
    added(&api, &spec).await;
    api
}

fn refused_to_client(answer: &(StatusCode, Value)) {
    refused(answer, 403, "forbidden");
    let hint = answer.1["error"]["hint"].as_str().expect("a hint");
    assert!(hint.contains("boxwood mcp"), "{hint}");
}

/// Method, path below the session, body.
fn session_requests() -> Vec<(Method, &'static str, Value)> {
    let (get, post) = (|| Method::GET, || Method::POST);
    let cmd = || json!({"cmd": "env"});
    let process = || json!({"command": "env"});
    vec![
        (post(), "", json!({})),
        (post(), "/exec", cmd()),
        (post(), "/exec/stream", cmd()),
        (get(), "/execs", Value::Null),
        (get(), "/execs/1", Value::Null),
        (Method::DELETE, "/execs/1", Value::Null),
        (get(), "/execs/1/stream", Value::Null),
        (get(), "/processes", Value::Null),
        (post(), "/managed-process", process()),
        (get(), "/managed-process", Value::Null),
        (Method::DELETE, "/managed-process", Value::Null),
        (post(), "/managed-process/main", process()),
        (post(), "/managed-process/other", process()),
        (get(), "/managed-process/main", Value::Null),
        (Method::DELETE, "/managed-process/main", Value::Null),
        (
            post(),
            "/managed-process/main/signal",
            json!({"signal": "KILL"}),
        ),
        (get(), "/managed-process/main/logs", Value::Null),
        (get(), "/files?path=/workspace/x", Value::Null),
        (Method::PUT, "/files?path=/workspace/x", json!("x")),
        (Method::DELETE, "/files?path=/workspace/x", Value::Null),
        (get(), "/files/list?path=/workspace", Value::Null),
        (get(), "/files/stat?path=/workspace", Value::Null),
        (post(), "/files/mkdir", json!({"path": "/workspace/d"})),
        (
            post(),
            "/files/move",
            json!({"from": "/workspace/a", "to": "/workspace/b"}),
        ),
        (post(), "/files/read", json!({"path": "/workspace/x"})),
        (
            post(),
            "/files/write",
            json!({"path": "/workspace/x", "content": "x"}),
        ),
        (
            post(),
            "/files/edit",
            json!({"path": "/workspace/x", "old_string": "a", "new_string": "b"}),
        ),
        (
            post(),
            "/files/glob",
            json!({"path": "/workspace", "pattern": "*"}),
        ),
        (
            post(),
            "/files/grep",
            json!({"path": "/workspace", "pattern": "x"}),
        ),
        (
            post(),
            "/files/register_skill",
            json!({"path": "/workspace/x"}),
        ),
        (Method::DELETE, "", Value::Null),
    ]
}

fn ask(api: &Api, method: Method, path: &str, body: &Value) -> reqwest::RequestBuilder {
    let request = api.request(method, &format!("/v1/sessions/mcp-tiny{path}"));
    if body.is_null() {
        return request;
    }
    let request = request.header("content-type", "application/json");
    request.body(body.to_string())
}

/// All documented routes of a session, except the sockets and `GET` of the session itself.
fn documented() -> Vec<String> {
    let document: Value = serde_json::from_str(boxwood_server::openapi_json()).expect("a document");
    let paths = document["paths"].as_object().expect("paths");
    let mut found = Vec::new();
    for (path, item) in paths {
        let Some(below) = path.strip_prefix("/v1/sessions/{session_id}") else {
            continue;
        };
        for method in ["get", "put", "post", "delete", "patch"] {
            let is_look = below.is_empty() && method == "get";
            if item.get(method).is_some() && !below.ends_with("/ws") && !is_look {
                found.push(format!("{method} {below}"));
            }
        }
    }
    found
}

fn is_tried(route: &str) -> bool {
    let is_same = |pattern: &str, path: &str| {
        let (pattern, path): (Vec<_>, Vec<_>) =
            (pattern.split('/').collect(), path.split('/').collect());
        pattern.len() == path.len()
            && pattern
                .iter()
                .zip(&path)
                .all(|(part, given)| part.starts_with('{') || part == given)
    };
    session_requests().iter().any(|(method, path, _)| {
        let path = path.split('?').next().unwrap_or_default();
        let (expected_method, pattern) = route.split_once(' ').expect("two words");
        method.as_str().eq_ignore_ascii_case(expected_method) && is_same(pattern, path)
    })
}

#[tokio::test]
async fn clients_cannot_use_the_box_through_any_route() {
    let missed: Vec<String> = documented()
        .into_iter()
        .filter(|route| !is_tried(route))
        .collect();
    assert_eq!(missed, [] as [String; 0], "routes that this test forgets");

    let api = with_server().await;
    let token = api.daemon.token("client");
    for (method, path, body) in session_requests() {
        let bare = answer(ask(&api, method.clone(), path, &body)).await;
        let label = format!("{method} {path}: {}", bare.1);
        assert_eq!(bare.0, 403, "{label}");
        refused_to_client(&bare);
        let request = ask(&api, method.clone(), path, &body).bearer_auth(&token);
        refused_to_client(&answer(request).await);
        // A token has no operator rights.
        let request = ask(&api, method, path, &body).bearer_auth(&token);
        let response = answer(request.header(OPERATOR, "1")).await;
        refused(&response, 403, "forbidden");
    }
    // It is visible to all clients and unchanged.
    let (_, list) = api.get("/v1/sessions").await;
    assert_eq!(list[0]["session_id"], "mcp-tiny", "{list}");
    let (status, seen) = api.get("/v1/sessions/mcp-tiny").await;
    assert_eq!(status, 200, "{seen}");
    for inside in ["managed_process", "managed_processes", "execs"] {
        let is_empty = match &seen[inside] {
            Value::Object(found) => found.is_empty(),
            Value::Array(found) => found.is_empty(),
            other => other.is_null(),
        };
        assert!(is_empty, "{inside}: {seen}");
    }
    let (_, info) = api.get("/v1/mcp/servers/tiny").await;
    assert_eq!(info["runtime"]["status"], "connected", "{info}");
}

#[tokio::test]
async fn clients_cannot_use_the_box_through_a_websocket() {
    let api = with_server().await;
    let address = api.daemon.address();
    for path in [
        "managed-process/ws",
        "managed-process/main/ws",
        "execs/1/ws",
    ] {
        let url = format!("ws://{address}/v1/sessions/mcp-tiny/{path}");
        let error = tokio_tungstenite::connect_async(url).await;
        let tokio_tungstenite::tungstenite::Error::Http(response) = error.expect_err("refused")
        else {
            panic!("{path}: no answer");
        };
        assert_eq!(response.status(), 403, "{path}");
    }
    let mut socket = api.socket("/v1/sessions/mcp-tiny/exec/ws").await;
    let start = json!({"type": "start", "spec": {"cmd": "env"}});
    let sent = socket.send(Message::text(start.to_string())).await;
    sent.expect("sent");
    let response = next_text(&mut socket).await.expect("an answer");
    assert!(
        response.contains("forbidden") && response.contains("boxwood mcp"),
        "{response}"
    );
}

async fn langbot(socket: &mut Socket, action: &str, data: Value) -> Value {
    let request = json!({"seq_id": 1, "action": action, "data": data}).to_string();
    let sent = socket.send(Message::text(request)).await;
    sent.expect("sent");
    let answer = next_text(socket).await.expect("an answer");
    serde_json::from_str(&answer).expect("JSON")
}

#[tokio::test]
async fn langbot_and_the_agent_tools_cannot_use_the_box() {
    let api = with_server().await;
    let socket = &mut api.socket("/rpc/ws").await;
    let id = json!("mcp-tiny");
    for (action, data) in [
        ("box_exec", json!({"session_id": id, "cmd": "env"})),
        ("box_create_session", json!({"session_id": id})),
        (
            "box_start_managed_process",
            json!({"session_id": id, "spec": {"command": "env", "process_id": "main"}}),
        ),
        (
            "box_get_managed_process",
            json!({"session_id": id, "process_id": "main"}),
        ),
        (
            "box_stop_managed_process",
            json!({"session_id": id, "process_id": "main"}),
        ),
        ("box_delete_session", json!({"session_id": id})),
    ] {
        let response = langbot(socket, action, data).await;
        let message = response["message"].as_str().expect("text");
        assert!(message.contains("boxwood mcp"), "{action}: {message}");
    }
    let seen = langbot(socket, "box_get_sessions", json!({})).await;
    assert_eq!(seen["data"]["sessions"][0]["session_id"], id, "{seen}");
    // A shutdown by LangBot removes only its own boxes.
    langbot(socket, "box_shutdown", json!({})).await;

    let query = json!({
        "launcher_type": "person", "launcher_id": "tiny",
        "pipeline": {"box_session_id_template": "mcp-{launcher_id}"},
    });
    for (tool, arguments) in [
        ("exec", json!({"command": "env"})),
        ("read", json!({"path": "/workspace/x"})),
        ("write", json!({"path": "/workspace/x", "content": "x"})),
        ("glob", json!({"pattern": "*"})),
    ] {
        let body = json!({"arguments": arguments, "query": query});
        let path = format!("/v1/agent/tools/{tool}");
        let (_, response) = api.post(&path, &body).await;
        let response = response.to_string();
        assert!(response.contains("hosted MCP server"), "{tool}: {response}");
        assert!(!response.contains(SECRET), "{tool}: {response}");
    }
    let (_, info) = api.get("/v1/mcp/servers/tiny").await;
    assert_eq!(info["runtime"]["status"], "connected", "{info}");
}

#[tokio::test]
async fn clients_get_no_events_about_commands_in_the_box() {
    let api = with_server().await;
    let watch = |path: &str| api.request(Method::GET, path);
    let token = api.daemon.token("client");
    let watching = [
        watch("/v1/events"),
        watch("/v1/events?session_id=mcp-tiny"),
        watch("/v1/events").bearer_auth(&token),
        watch("/v1/events?session_id=mcp-tiny").header(OPERATOR, "1"),
    ];
    let mut streams = Vec::new();
    for request in watching {
        streams.push(request.send().await.expect("an answer"));
    }
    let exec = ask(&api, Method::POST, "/exec", &json!({"cmd": "true"}));
    let (status, done) = answer(exec.header(OPERATOR, "1")).await;
    assert_eq!(status, 200, "{done}");
    let delete = ask(&api, Method::DELETE, "", &Value::Null);
    let (status, deleted) = answer(delete.header(OPERATOR, "1")).await;
    assert!(status.is_success(), "{deleted}");
    for (index, stream) in streams.iter_mut().enumerate() {
        let mut events = String::new();
        while !events.contains("session_deleted") {
            let chunk = stream.chunk().await.expect("events").expect("no end");
            events.push_str(&String::from_utf8_lossy(&chunk));
        }
        let is_operator = index == 3;
        assert_eq!(
            events.contains("exec_started"),
            is_operator,
            "{index}: {events}"
        );
        let has_exec = events.contains("exec_finished");
        assert_eq!(has_exec, is_operator, "{index}: {events}");
        let has_process = events.contains("process_");
        assert!(is_operator || !has_process, "{index}: {events}");
    }
}

#[tokio::test]
async fn the_operator_header_gives_access_to_the_box() {
    let api = with_server().await;
    let exec = ask(&api, Method::POST, "/exec", &json!({"cmd": "echo here"}));
    let (status, done) = answer(exec.header(OPERATOR, "1")).await;
    assert_eq!((status.as_u16(), &done["stdout"]), (200, &json!("here\n")));
    let logs = ask(
        &api,
        Method::GET,
        "/managed-process/main/logs",
        &Value::Null,
    );
    let (status, logs) = answer(logs.header(OPERATOR, "1")).await;
    assert_eq!(status, 200, "{logs}");
    assert!(logs.to_string().contains("tiny server is up"), "{logs}");

    let url = format!("ws://{}/v1/sessions/mcp-tiny/exec/ws", api.daemon.address());
    let mut request = url.into_client_request().expect("a request");
    request
        .headers_mut()
        .insert(OPERATOR, "1".parse().expect("a value"));
    let (mut socket, _) = tokio_tungstenite::connect_async(request)
        .await
        .expect("an upgrade");
    let start = json!({"type": "start", "spec": {"cmd": "echo here"}});
    let sent = socket.send(Message::text(start.to_string())).await;
    sent.expect("sent");
    let response = next_text(&mut socket).await.expect("an answer");
    assert!(!response.contains("forbidden"), "{response}");
}
