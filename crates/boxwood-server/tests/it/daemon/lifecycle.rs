//! How a daemon begins and ends.

use std::time::{Duration, Instant};

use boxwood_server::{ServeError, StateDirError, Stop, serve_until};
use boxwood_session::Backends;
use boxwood_test_support::FakeBackend;
use boxwood_test_support::daemon::fresh_config;
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::json;
use tokio_tungstenite::tungstenite::Message;

use crate::api::{Api, next_text};

#[tokio::test]
async fn stopping_lets_running_requests_end_and_leaves_no_box() {
    let api = Api::start().await;
    api.post("/v1/sessions/idle", &json!({})).await;
    let url = api.daemon.url();
    let running = tokio::spawn({
        let http = api.http.clone();
        async move {
            http.post(format!("{url}/v1/sessions/busy/exec"))
                .header("content-type", "application/json")
                .body(json!({"cmd": "sleep 1; echo finished"}).to_string())
                .send()
                .await
                .expect("an answer")
                .text()
                .await
                .expect("a body")
        }
    });
    crate::api::eventually("the command runs", || async {
        api.backend.boxes().len() == 2
    })
    .await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let (address, socket) = (api.daemon.address(), api.daemon.unix_socket());
    let backend = api.backend.clone();
    drop(api.http);
    api.daemon.stop().await;
    let body = running.await.expect("the request ended");
    assert!(body.contains("finished"), "{body}");
    assert!(backend.boxes().is_empty());
    assert_eq!(backend.shutdowns(), 1);
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
    assert!(!socket.exists());
}

#[tokio::test]
async fn stopping_completes_langbots_requests() {
    let api = Api::start().await;
    let mut socket = api.socket("/rpc/ws").await;
    let data = json!({"session_id": "busy", "cmd": "sleep 1; echo finished"});
    let request = json!({"seq_id": 7, "action": "box_exec", "data": data});
    let sent = socket.send(Message::text(request.to_string())).await;
    sent.expect("sent");
    crate::api::eventually("the command runs", || async {
        api.backend.boxes().len() == 1
    })
    .await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let ending = tokio::spawn(api.daemon.stop());
    let answer = next_text(&mut socket).await.expect("an answer");
    assert!(answer.contains("finished"), "{answer}");
    let Some(Ok(Message::Close(Some(goodbye)))) = socket.next().await else {
        panic!("the daemon says goodbye");
    };
    assert_eq!(u16::from(goodbye.code), 1001);
    ending.await.expect("the daemon ended");
    assert!(api.backend.boxes().is_empty());
}

#[tokio::test]
async fn event_streams_do_not_delay_the_shutdown() {
    let api = Api::start_with(|config| config.http.drain_sec = 60).await;
    let _events = api
        .request(reqwest::Method::GET, "/v1/events")
        .send()
        .await
        .expect("an answer");
    let started = Instant::now();
    api.daemon.stop().await;
    assert!(
        started.elapsed() < Duration::from_secs(30),
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test]
async fn a_second_request_to_stop_does_not_wait() {
    let api = Api::start_with(|config| config.http.drain_sec = 60).await;
    let url = api.daemon.url();
    let http = api.http.clone();
    let running = tokio::spawn(async move {
        http.post(format!("{url}/v1/sessions/busy/exec"))
            .header("content-type", "application/json")
            .body(json!({"cmd": "sleep 25"}).to_string())
            .send()
            .await
    });
    crate::api::eventually("the command runs", || async {
        api.backend.boxes().len() == 1
    })
    .await;
    let started = Instant::now();
    api.daemon.ask_to_stop();
    api.daemon.stop().await;
    assert!(
        started.elapsed() < Duration::from_secs(15),
        "{:?}",
        started.elapsed()
    );
    // However it was answered, it was not left hanging.
    let _ = tokio::time::timeout(Duration::from_secs(5), running)
        .await
        .expect("the request ended");
}

fn backends() -> Backends {
    Backends::only(FakeBackend::new())
}

struct Never;

impl Stop for Never {
    async fn next(&mut self) {
        std::future::pending::<()>().await;
    }
}

#[tokio::test]
async fn two_daemons_never_share_a_state_directory() {
    let api = Api::start().await;
    let config = fresh_config(api.daemon.state_dir());
    let second = serve_until(config, backends(), |_| {}, Never).await;
    let error = second.expect_err("refused");
    assert!(
        matches!(error, ServeError::StateDir(StateDirError::InUse { .. })),
        "{error}"
    );
    assert!(error.hint().is_some());
    assert_eq!(api.get("/v1/status").await.0, 200);
}

#[tokio::test]
async fn an_address_in_use_is_named() {
    let api = Api::start().await;
    let state = tempfile::tempdir().expect("a temporary directory");
    let mut config = fresh_config(state.path());
    config.listen = Some(api.daemon.address());
    let error = serve_until(config, backends(), |_| {}, Never)
        .await
        .expect_err("refused");
    assert!(
        error
            .to_string()
            .contains(&api.daemon.address().to_string()),
        "{error}"
    );
    assert!(error.hint().is_some());
}

#[tokio::test]
async fn an_invalid_configuration_stops_the_start() {
    let state = tempfile::tempdir().expect("a temporary directory");
    let mut config = fresh_config(state.path());
    config.policy.default_profile = Some("nope".to_owned());
    let error = serve_until(config, backends(), |_| {}, Never)
        .await
        .expect_err("refused");
    assert!(error.to_string().contains("default_profile"), "{error}");
}
