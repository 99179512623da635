//! Several backends in one daemon: status and selection.

use std::sync::Arc;
use std::time::Duration;

use boxwood_server::{Config, Stop, serve_until};
use boxwood_session::{Backends, Candidate, Choice};
use boxwood_test_support::FakeBackend;
use boxwood_test_support::daemon::{Daemon, fresh_config};
use futures_util::SinkExt as _;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use crate::api::{Api, Socket, next_text, refused};
use crate::mcp::servers::{added, tiny};

struct TwoBackends {
    api: Api,
    two: Arc<FakeBackend>,
}

impl TwoBackends {
    /// The API's own backend is the first.
    async fn start(choice: &str, adjust: impl FnOnce(&mut Config)) -> Self {
        let [one, two] = ["one", "two"].map(FakeBackend::named);
        let candidates = [
            Candidate::initialised(one.clone()),
            Candidate::absent("lost", "its program is missing", "install `lost`"),
            Candidate::initialised(two.clone()),
        ];
        let backends = Backends::new(candidates, Choice::new(choice));
        let daemon = Daemon::start_backends(backends, adjust).await;
        let http = reqwest::Client::builder().timeout(Duration::from_secs(30));
        Self {
            api: Api {
                daemon,
                backend: one,
                http: http.build().expect("a client"),
            },
            two,
        }
    }
}

#[tokio::test]
async fn every_backend_is_listed() {
    let TwoBackends { api, two } = TwoBackends::start("auto", |_| {}).await;
    assert_eq!(two.probes(), 0, "not probed yet");
    let (status, reports) = api.get("/v1/backends").await;
    assert_eq!(status, 200);
    let able = json!({
        "pty": true, "managed_processes": true, "files": true, "network": true,
        "host_mounts": true, "live_mounts": true,
    });
    assert_eq!(
        reports,
        json!([
            {"name": "one", "available": true, "chosen": true, "capabilities": able, "mechanisms": []},
            {"name": "lost", "available": false, "chosen": false,
             "reason": "its program is missing", "fix": "install `lost`", "mechanisms": []},
            {"name": "two", "available": true, "chosen": false, "capabilities": able, "mechanisms": []},
        ])
    );
    let (_, report) = api.get("/v1/doctor?backend=two").await;
    assert_eq!(report["backend"], "two");
    assert_eq!(report["backends"][0]["name"], "one");
    let (status, lost) = api.get("/v1/doctor?backend=lost").await;
    assert_eq!((status.as_u16(), &lost["usable"]), (200, &json!(false)));
    assert_eq!(lost["findings"][0]["fix"], "install `lost`");
    refused(
        &api.get("/v1/doctor?backend=none").await,
        400,
        "validation_error",
    );
    refused(
        &api.get("/v1/doctor?which=two").await,
        400,
        "validation_error",
    );
}

#[tokio::test]
async fn a_request_may_name_its_backend() {
    let TwoBackends { api, two } = TwoBackends::start("auto", |_| {}).await;
    let (status, made) = api.post("/v1/sessions/s", &json!({"backend": "two"})).await;
    assert_eq!(
        (status.as_u16(), &made["backend_name"]),
        (201, &json!("two"))
    );
    let (_, detail) = api.get("/v1/sessions/s").await;
    assert_eq!(detail["config_hash"].as_str().map(str::len), Some(16));
    let other = api.post("/v1/sessions/s", &json!({"backend": "one"})).await;
    refused(&other, 409, "session_conflict");
    assert!(
        other.1["error"]["message"]
            .as_str()
            .expect("text")
            .ends_with("backend=two")
    );
    let unknown = api
        .post("/v1/sessions/t", &json!({"backend": "none"}))
        .await;
    refused(&unknown, 400, "validation_error");
    assert!(
        unknown.1["error"]["message"]
            .as_str()
            .expect("text")
            .contains("one, lost, two")
    );
    let lost = api
        .post("/v1/sessions/t", &json!({"backend": "lost"}))
        .await;
    refused(&lost, 503, "backend_unavailable");
    assert_eq!(lost.1["error"]["hint"], "install `lost`");
    // What was named does not turn into another one when it is gone.
    two.break_down("it stopped", "start it");
    let unavailable = api.post("/v1/sessions/t", &json!({"backend": "two"})).await;
    refused(&unavailable, 503, "backend_unavailable");
    assert_eq!(unavailable.1["error"]["hint"], "start it");
    assert_eq!(api.backend.starts(), 0);
    two.mend();
}

fn with_profile(backend: &str) -> impl FnOnce(&mut Config) {
    let table = format!("[team]\nbackend = '{backend}'\nlocked = ['backend']\n");
    move |config| {
        config.policy.profiles = toml::from_str(&table).expect("TOML");
        config.policy.default_profile = Some("team".to_owned());
    }
}

#[tokio::test]
async fn a_profile_may_name_and_lock_its_backend() {
    let TwoBackends { api, .. } = TwoBackends::start("auto", with_profile("two")).await;
    // Without a request it is what a request that names nothing would get.
    assert_eq!(api.get("/v1/health").await.1["name"], "two");
    let request = json!({"backend": "one", "cmd": "true"});
    let (_, ran) = api.post("/v1/sessions/s/exec", &request).await;
    assert_eq!(ran["backend_name"], "two");
    let notice = ran["notices"][0].as_str().expect("a notice");
    assert!(notice.contains("locked to two"), "{notice}");
    let open = json!({"profile": "network_basic", "network": "off"});
    let (_, made) = api.post("/v1/sessions/t", &open).await;
    assert_eq!(made["backend_name"], "one", "{made}");
}

struct Never;

impl Stop for Never {
    async fn next(&mut self) {
        std::future::pending::<()>().await;
    }
}

#[tokio::test]
async fn a_profile_that_names_no_backend_of_ours_stops_the_start() {
    let state = tempfile::tempdir().expect("a directory");
    let mut config = fresh_config(state.path());
    with_profile("none")(&mut config);
    let backends = Backends::only(FakeBackend::named("one"));
    let error = serve_until(config, backends, |_| {}, Never)
        .await
        .expect_err("the profile's backend does not exist");
    assert_eq!(
        error.to_string(),
        "profiles.team.backend: unknown backend `none`, available backends: one"
    );
    assert!(error.hint().expect("a way out").contains("auto"));
}

/// One action in LangBot's 0.4 wire format.
async fn call(socket: &mut Socket, action: &str, data: Value) -> Value {
    let request = json!({"seq_id": 1, "action": action, "data": data}).to_string();
    let sent = socket.send(Message::text(request)).await;
    sent.expect("sent");
    let answer = next_text(socket).await.expect("an answer");
    serde_json::from_str(&answer).expect("JSON")
}

async fn init(socket: &mut Socket, backend: &str) -> Value {
    let answer = call(socket, "box_init", json!({"backend": backend})).await;
    assert_eq!(answer["code"], 0, "{answer}");
    call(socket, "box_get_backend_info", json!({})).await["data"].take()
}

async fn run(socket: &mut Socket, session: &str) -> Value {
    call(
        socket,
        "box_exec",
        json!({"session_id": session, "cmd": "true"}),
    )
    .await
}

#[tokio::test]
async fn langbot_selects_the_backend_while_it_has_no_boxes() {
    let TwoBackends { api, .. } = TwoBackends::start("auto", |_| {}).await;
    // Not one of LangBot's.
    added(&api, &tiny("tiny")).await;
    let socket = &mut api.socket("/rpc/ws").await;
    let one = json!({"name": "one", "available": true});
    let two = json!({"name": "two", "available": true});
    let none = json!({"name": null, "available": false});
    for (requested, expected) in [
        ("", &one),
        ("local", &one),
        (" two ", &two),
        ("lost", &none),
        ("no-such-backend", &none),
        ("two", &two),
    ] {
        assert_eq!(init(socket, requested).await, *expected, "{requested}");
    }
    let ran = run(socket, "s").await;
    assert_eq!(ran["data"]["backend_name"], "two", "{ran}");
    // LangBot has a box, so its backend does not change.
    assert_eq!(init(socket, "one").await, two);
    assert_eq!(run(socket, "t").await["data"]["backend_name"], "two");
    for session in ["s", "t"] {
        call(socket, "box_delete_session", json!({"session_id": session})).await;
    }
    assert_eq!(run(socket, "u").await["data"]["backend_name"], "one");
}

#[tokio::test]
async fn a_missing_backend_has_langbots_error() {
    let TwoBackends { api, .. } = TwoBackends::start("auto", |_| {}).await;
    let socket = &mut api.socket("/rpc/ws").await;
    for (requested, part) in [
        ("no-such-backend", "one, lost, two"),
        ("lost", "its program is missing (install `lost`)"),
    ] {
        init(socket, requested).await;
        let refused = run(socket, "s").await;
        let message = refused["message"].as_str().expect("text");
        let start = "BoxBackendUnavailableError: LangBot Box backend unavailable. ";
        assert!(message.starts_with(start), "{message}");
        assert!(message.contains(part), "{message}");
    }
    assert_eq!(api.backend.starts(), 0);
}

#[tokio::test]
async fn the_operators_backend_takes_precedence_over_langbots() {
    let TwoBackends { api, two } =
        TwoBackends::start("two", |config| config.backend_chosen = true).await;
    let socket = &mut api.socket("/rpc/ws").await;
    let expected = json!({"name": "two", "available": true});
    assert_eq!(init(socket, "one").await, expected);
    assert_eq!(init(socket, "no-such-backend").await, expected);
    assert_eq!(run(socket, "s").await["data"]["backend_name"], "two");
    two.break_down("it stopped", "start it");
    let refused = run(socket, "t").await;
    let message = refused["message"].as_str().expect("text");
    assert!(
        message.starts_with("BoxBackendUnavailableError: "),
        "{message}"
    );
    assert_eq!(api.backend.starts(), 0, "no fallback");
}
