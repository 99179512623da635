//! Sessions and whole commands.

use reqwest::Method;
use serde_json::{Value, json};

use crate::api::{Api, answer, refused};

#[tokio::test]
async fn the_daemon_reports_its_status() {
    let api = Api::start().await;
    crate::api::eventually("the backend was looked at", || async {
        api.get("/v1/health").await.1["available"] == true
    })
    .await;
    let (status, health) = api.get("/v1/health").await;
    assert_eq!(status, 200);
    assert_eq!(health, json!({"name": "fake", "available": true}));
    let (status, body) = api.get("/v1/status").await;
    assert_eq!(status, 200);
    assert_eq!(
        body,
        json!({
            "backend": {"name": "fake", "available": true},
            "active_sessions": 0, "managed_processes": 0, "session_ttl_sec": 300,
            "warm_boxes": 0, "frozen_sessions": 0
        })
    );
    let (_, profiles) = api.get("/v1/profiles").await;
    let names: Vec<_> = profiles
        .as_array()
        .expect("a list")
        .iter()
        .map(|profile| profile["name"].as_str().expect("a name"))
        .collect();
    for name in [
        "default",
        "offline_readonly",
        "network_basic",
        "network_extended",
    ] {
        assert!(names.contains(&name), "{names:?}");
    }
    let (status, report) = api.get("/v1/doctor").await;
    assert_eq!(status, 200);
    assert_eq!(report["backend"], "fake");
    assert_eq!(report["usable"], true);
    let (status, alive) = api.get("/healthz").await;
    assert_eq!((status.as_u16(), &alive["status"]), (200, &json!("ok")));
    let (status, ready) = api.get("/readyz").await;
    assert_eq!((status.as_u16(), &ready["status"]), (200, &json!("ready")));
}

#[tokio::test]
async fn a_session_is_created_reused_shown_listed_and_deleted() {
    let api = Api::start().await;
    let path = "/v1/sessions/s1";
    let (status, created) = api.post(path, &json!({"session_id": "ignored"})).await;
    assert_eq!(status, 201, "{created}");
    assert_eq!(created["session_id"], "s1");
    assert_eq!(created["backend_name"], "fake");
    let (status, reused) = api.post(path, &json!({})).await;
    assert_eq!(status, 201);
    assert_eq!(reused["backend_session_id"], created["backend_session_id"]);
    let (status, shown) = api.get(path).await;
    assert_eq!(status, 200);
    assert_eq!(shown["session_id"], "s1");
    assert!(shown.get("managed_process").is_none());
    assert!(shown.get("managed_processes").is_none());
    let (_, list) = api.get("/v1/sessions").await;
    assert_eq!(list.as_array().map(Vec::len), Some(1));
    let (status, deleted) = api.delete(path).await;
    assert_eq!(status, 200);
    assert_eq!(deleted, json!({"deleted": "s1"}));
    refused(&api.delete(path).await, 404, "session_not_found");
    let missing = api.get(path).await;
    refused(&missing, 404, "session_not_found");
    assert_eq!(missing.1["error"]["message"], "session s1 not found");
    assert!(api.backend.boxes().is_empty());
}

#[tokio::test]
async fn a_create_without_a_body_takes_all_defaults() {
    let api = Api::start().await;
    let (status, created) = answer(api.request(Method::POST, "/v1/sessions/plain")).await;
    assert_eq!(status, 201, "{created}");
    assert_eq!(created["memory_mb"], 512);
}

#[tokio::test]
async fn a_command_runs_and_creates_its_session() {
    let api = Api::start().await;
    let (status, result) = api
        .post(
            "/v1/sessions/e/exec",
            &json!({"cmd": "printf ' a\\n'; echo $WORD >&2; exit 3", "env": {"WORD": "w"}}),
        )
        .await;
    assert_eq!(status, 200, "{result}");
    assert_eq!(result["status"], "completed");
    assert_eq!(result["exit_code"], 3);
    assert_eq!(result["stdout"], " a\n");
    assert_eq!(result["stderr"], "w\n");
    assert_eq!(result["session_id"], "e");
    assert_eq!(api.get("/v1/sessions/e").await.0, 200);
    let (_, result) = api
        .post(
            "/v1/sessions/e/exec",
            &json!({"cmd": "cat", "stdin": "in put"}),
        )
        .await;
    assert_eq!(result["stdout"], "in put");
}

#[tokio::test]
async fn a_timeout_is_a_result() {
    let api = Api::start().await;
    let (status, result) = api
        .post(
            "/v1/sessions/t/exec",
            &json!({"cmd": "echo early; sleep 60", "timeout_sec": 1}),
        )
        .await;
    assert_eq!(status, 200);
    assert_eq!(result["status"], "timed_out");
    assert_eq!(result["exit_code"], Value::Null);
    assert_eq!(result["stdout"], "early\n");
    assert_eq!(api.get("/v1/sessions/t").await.0, 200);
}

#[tokio::test]
async fn a_timeout_over_the_profiles_maximum_is_clamped_with_a_notice() {
    let api = Api::start().await;
    let (status, result) = api
        .post(
            "/v1/sessions/c/exec",
            &json!({"cmd": "true", "timeout_sec": 999}),
        )
        .await;
    assert_eq!(status, 200);
    let notices = result["notices"].to_string();
    assert!(notices.contains("120"), "{result}");
}

#[tokio::test]
async fn other_settings_are_a_conflict_that_names_the_field() {
    let api = Api::start().await;
    api.post("/v1/sessions/c", &json!({"memory_mb": 256})).await;
    let conflict = api.post("/v1/sessions/c", &json!({"memory_mb": 128})).await;
    refused(&conflict, 409, "session_conflict");
    assert_eq!(
        conflict.1["error"]["message"],
        "sandbox_exec session c already exists with memory_mb=256"
    );
}

#[tokio::test]
async fn ids_are_just_names() {
    let api = Api::start().await;
    for (path, id) in [
        ("..%2Fx", "../x"),
        ("a%2Fb", "a/b"),
        ("a%20b%3Fc", "a b?c"),
        ("%E5%AD%97", "字"),
        ("100%25", "100%"),
        ("exec", "exec"),
        ("%252F", "%2F"),
    ] {
        let target = format!("/v1/sessions/{path}");
        let (status, session) = api.post(&target, &json!({})).await;
        assert_eq!(status, 201, "{path}: {session}");
        assert_eq!(session["session_id"], id);
        let (status, result) = api
            .post(&format!("{target}/exec"), &json!({"cmd": "echo x"}))
            .await;
        assert_eq!(status, 200, "{path}: {result}");
        assert_eq!(api.delete(&target).await.1["deleted"], id);
    }
}

/// Clients that tidy paths up never send this one; others do.
#[tokio::test]
async fn a_session_may_be_called_dot_dot() {
    let api = Api::start().await;
    for path in ["%2E%2E", ".."] {
        let text = api
            .raw(
                format!(
                    "POST /v1/sessions/{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{{}}"
                )
                .as_bytes(),
            )
            .await;
        assert!(text.starts_with("HTTP/1.1 201"), "{text}");
        assert!(text.contains("\"session_id\":\"..\""), "{text}");
    }
}

#[tokio::test]
async fn full_specs_of_langbot_box_clients_are_accepted() {
    let api = Api::start().await;
    // What the clients of March send, without the fields that came later.
    let march = json!({
        "cmd": "pwd", "workdir": "/workspace", "timeout_sec": 30, "network": "off",
        "session_id": "m", "env": {}, "image": "python:3.11-slim", "host_path": null,
        "host_path_mode": "rw", "cpus": 1.0, "memory_mb": 512, "pids_limit": 128,
        "read_only_rootfs": true
    });
    let (status, result) = api.post("/v1/sessions/m/exec", &march).await;
    assert_eq!(status, 200, "{result}");
    assert_eq!(result["exit_code"], 0);
}

#[tokio::test]
async fn mounts_are_denied_unless_allowed() {
    let shared = tempfile::tempdir().expect("a temporary directory");
    let outside = tempfile::tempdir().expect("a temporary directory");
    let root = shared.path().to_owned();
    let api = Api::start_with(move |config| {
        config.policy.mounts.allowed_roots.push(root);
    })
    .await;
    let project = shared.path().join("project");
    std::fs::create_dir(&project).expect("a directory");
    let create = async |host_path: &str| {
        api.post("/v1/sessions/m", &json!({"host_path": host_path}))
            .await
    };
    let text = |path: &std::path::Path| path.display().to_string();
    let (status, session) = create(&text(&project)).await;
    assert_eq!(status, 201, "{session}");
    refused(&create("/etc").await, 400, "validation_error");
    refused(&create("/").await, 400, "validation_error");
    refused(
        &create(&text(outside.path())).await,
        400,
        "validation_error",
    );
    refused(
        &create(&text(&project.join("nope"))).await,
        400,
        "validation_error",
    );
    refused(&create("relative").await, 400, "validation_error");
    // A symlink is where it leads.
    let link = project.join("link");
    std::os::unix::fs::symlink(outside.path(), &link).expect("a link");
    refused(&create(&text(&link)).await, 400, "validation_error");
    // So is the daemon's own state, even below an allowed root.
    refused(
        &create(&text(api.daemon.state_dir())).await,
        400,
        "validation_error",
    );
    let extra = api
        .post(
            "/v1/sessions/x",
            &json!({"extra_mounts": [{"host_path": "/etc", "mount_path": "/data"}]}),
        )
        .await;
    refused(&extra, 400, "validation_error");
}

#[tokio::test]
async fn a_backend_that_fails_is_an_error_with_the_backends_words() {
    let api = Api::start().await;
    api.backend.fail_next_start("no more mounts");
    let failed = api.post("/v1/sessions/f", &json!({})).await;
    assert!(failed.0.is_server_error(), "{failed:?}");
    assert!(failed.1["error"]["code"].is_string());
    assert_eq!(api.post("/v1/sessions/f", &json!({})).await.0, 201);
}

#[tokio::test]
async fn a_full_daemon_says_so() {
    let api = Api::start_with(|config| config.session.max_sessions = 1).await;
    assert_eq!(api.post("/v1/sessions/a", &json!({})).await.0, 201);
    refused(
        &api.post("/v1/sessions/b", &json!({})).await,
        503,
        "capacity",
    );
    assert_eq!(api.post("/v1/sessions/a", &json!({})).await.0, 201);
}

#[tokio::test]
async fn requests_have_ids() {
    let api = Api::start().await;
    let id = async |given: Option<&str>| {
        let mut request = api.request(Method::GET, "/v1/status");
        if let Some(given) = given {
            request = request.header("x-request-id", given);
        }
        let response = request.send().await.expect("an answer");
        response.headers()["x-request-id"]
            .to_str()
            .expect("text")
            .to_owned()
    };
    assert_eq!(id(Some("mine-1")).await, "mine-1");
    assert_ne!(id(Some("not plain")).await, "not plain");
    assert_ne!(id(None).await, id(None).await);
}

#[tokio::test]
async fn numbers_are_served_for_prometheus() {
    let api = Api::start().await;
    api.post("/v1/sessions/m/exec", &json!({"cmd": "true"}))
        .await;
    api.get("/nowhere/at/all").await;
    let response = api
        .request(Method::GET, "/metrics")
        .send()
        .await
        .expect("an answer");
    assert_eq!(response.status(), 200);
    let text = response.text().await.expect("text");
    for line in [
        "boxwood_sessions 1",
        "boxwood_exec_duration_seconds_count 1",
        "boxwood_http_requests_total{method=\"POST\",route=\"/v1/sessions/{session_id}/exec\",status=\"200\"} 1",
        "boxwood_http_requests_total{method=\"GET\",route=\"unknown\",status=\"404\"} 1",
    ] {
        assert!(text.lines().any(|l| l == line), "{text}\nlacks {line}");
    }
}
