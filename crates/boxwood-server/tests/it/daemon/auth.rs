//! Authentication: local users, tokens, origins, `Host` headers.

use std::process::Stdio;
use std::time::Duration;

use reqwest::{Method, StatusCode};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::process::Command;

use crate::api::{Api, answer, refused};

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Sends bytes as the user `nobody`. Only root can change its user.
async fn as_nobody(api: &Api, request: &str, then: &str) -> String {
    let script = format!(
        "exec 3<>/dev/tcp/127.0.0.1/{}; printf '%b' \"$1\" >&3; {then}",
        api.daemon.address().port()
    );
    let output = Command::new("setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .args(["bash", "-c", &script, "bash", request])
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(Duration::from_secs(20), output)
        .await
        .expect("an end")
        .expect("setpriv runs; it is part of util-linux");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[tokio::test]
async fn another_local_user_gets_nothing_without_a_token() {
    if !is_root() {
        eprintln!("not run: only root can call the daemon as another user");
        return;
    }
    let api = Api::start().await;
    api.post("/v1/sessions/s", &json!({})).await;
    api.post("/v1/sessions/s/managed-process", &json!({"command": "cat"}))
        .await;
    let call = async |method: &str, path: &str, more: &str| {
        let request = format!(
            "{method} {path} HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n{more}\\r\\n"
        );
        as_nobody(&api, &request, "cat <&3").await
    };
    let document: serde_json::Value =
        serde_json::from_str(boxwood_server::openapi_json()).expect("JSON");
    let mut tried = 0;
    for (path, item) in document["paths"].as_object().expect("paths") {
        for method in item.as_object().expect("methods").keys() {
            let target = path
                .replace("{session_id}", "s")
                .replace("{process_id}", "default");
            let text = call(&method.to_uppercase(), &target, "").await;
            let open = ["/healthz", "/readyz"].contains(&path.as_str());
            let expected = if open { "HTTP/1.1 200" } else { "HTTP/1.1 401" };
            let ready = open && text.starts_with("HTTP/1.1 503");
            assert!(
                text.starts_with(expected) || ready,
                "{method} {path}: {text}"
            );
            if !open {
                assert!(text.contains("\"unauthorized\""), "{text}");
                assert!(text.to_lowercase().contains("www-authenticate: bearer"));
            }
            tried += 1;
        }
    }
    assert!(tried > 20, "{tried} routes");
    let unknown = call("GET", "/nowhere", "").await;
    assert!(unknown.starts_with("HTTP/1.1 401"), "{unknown}");

    let token = api.daemon.token("other");
    for header in [
        format!("Authorization: Bearer {token}\\r\\n"),
        format!("X-API-Key: {token}\\r\\n"),
    ] {
        let text = call("GET", "/v1/sessions", &header).await;
        assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    }
    let wrong = call(
        "GET",
        "/v1/sessions",
        "Authorization: Bearer bxw_wrong\\r\\n",
    )
    .await;
    assert!(wrong.starts_with("HTTP/1.1 401"), "{wrong}");
}

/// A closed socket has no owner, and old kernels call that owner root.
#[tokio::test]
async fn a_closed_connection_is_not_trusted() {
    if !is_root() {
        eprintln!("not run: only root can call the daemon as another user");
        return;
    }
    let api = Api::start().await;
    let request = "POST /v1/sessions/sneaked HTTP/1.1\\r\\nHost: localhost\\r\\nContent-Length: 2\\r\\n\\r\\n{}";
    for _ in 0..20 {
        as_nobody(&api, request, "exec 3>&-").await;
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(api.get("/v1/sessions").await.1, json!([]));
}

#[tokio::test]
async fn a_wrong_token_is_refused_for_trusted_peers_too() {
    let api = Api::start().await;
    let request = api
        .request(Method::GET, "/v1/status")
        .header("authorization", "Bearer bxw_guess");
    refused(&answer(request).await, 401, "unauthorized");
    let request = api
        .request(Method::GET, "/v1/status")
        .header("authorization", "Basic Zm9vOmJhcg==");
    refused(&answer(request).await, 401, "unauthorized");
}

#[tokio::test]
async fn pages_of_other_origins_are_refused() {
    let api = Api::start().await;
    let own = api.daemon.url();
    for (name, value, expected) in [
        ("origin", "http://evil.example", 403),
        ("origin", "null", 403),
        ("origin", "http://localhost:1", 403),
        ("origin", own.as_str(), 200),
        ("sec-fetch-site", "cross-site", 403),
        ("sec-fetch-site", "same-site", 403),
        ("sec-fetch-site", "same-origin", 200),
    ] {
        let request = api.request(Method::GET, "/v1/status").header(name, value);
        let got = answer(request).await;
        assert_eq!(got.0.as_u16(), expected, "{name}: {value}");
        if expected == 403 {
            refused(&got, 403, "forbidden");
        }
    }
    // A token does not make a page welcome.
    let token = api.daemon.token("page");
    let request = api
        .request(Method::GET, "/v1/status")
        .header("origin", "http://evil.example")
        .bearer_auth(token);
    refused(&answer(request).await, 403, "forbidden");
    // Neither does asking first.
    let preflight = api
        .request(Method::OPTIONS, "/v1/sessions/x/exec")
        .header("origin", "http://evil.example")
        .header("access-control-request-method", "POST")
        .send()
        .await
        .expect("an answer");
    assert_eq!(preflight.status(), StatusCode::FORBIDDEN);
    assert!(
        preflight
            .headers()
            .keys()
            .all(|name| !name.as_str().starts_with("access-control")),
        "{:?}",
        preflight.headers()
    );
}

#[tokio::test]
async fn a_page_cannot_open_a_websocket() {
    use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
    let api = Api::start().await;
    api.post("/v1/sessions/s", &json!({})).await;
    api.post("/v1/sessions/s/managed-process", &json!({"command": "cat"}))
        .await;
    for path in [
        "/v1/sessions/s/managed-process/ws",
        "/v1/sessions/s/exec/ws",
    ] {
        let mut request = format!("ws://{}{path}", api.daemon.address())
            .into_client_request()
            .expect("a request");
        request
            .headers_mut()
            .insert("origin", "http://evil.example".parse().expect("a value"));
        let error = tokio_tungstenite::connect_async(request)
            .await
            .expect_err("refused");
        let tokio_tungstenite::tungstenite::Error::Http(response) = error else {
            panic!("{error}");
        };
        assert_eq!(response.status(), 403);
    }
}

#[tokio::test]
async fn an_unknown_host_header_is_refused() {
    let api = Api::start_with(|config| config.http.hosts.push("box.example.com".to_owned())).await;
    let port = api.daemon.address().port();
    for (host, expected) in [
        (format!("evil.example:{port}"), 403),
        (format!("127.0.0.1.evil.example:{port}"), 403),
        ("192.0.2.1".to_owned(), 403),
        (format!("localhost:{port}"), 200),
        (format!("127.0.0.1:{port}"), 200),
        (format!("[::1]:{port}"), 200),
        ("BOX.example.com".to_owned(), 200),
    ] {
        let request = api.request(Method::GET, "/v1/status").header("host", &host);
        let got = answer(request).await;
        assert_eq!(got.0.as_u16(), expected, "{host}");
    }
    // A web page cannot have a token, so `Host` is not checked.
    let token = api.daemon.token("far");
    let request = api
        .request(Method::GET, "/v1/status")
        .header("host", "proxy.example")
        .bearer_auth(token);
    assert_eq!(answer(request).await.0, 200);
}

#[tokio::test]
async fn a_revoked_token_stops_working_at_once() {
    let api = Api::start().await;
    let token = api.daemon.token("short");
    let call = async || {
        let request = api.request(Method::GET, "/v1/status").bearer_auth(&token);
        answer(request).await.0.as_u16()
    };
    assert_eq!(call().await, 200);
    boxwood_server::Tokens::new(api.daemon.state_dir())
        .revoke("short")
        .expect("revoked");
    assert_eq!(call().await, 401);
}

#[tokio::test]
async fn the_unix_socket_serves_its_own_user() {
    use std::os::unix::fs::PermissionsExt as _;
    let api = Api::start().await;
    let path = api.daemon.unix_socket();
    let mode = std::fs::metadata(&path)
        .expect("a socket")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut stream = UnixStream::connect(&path).await.expect("a connection");
    stream
        .write_all(b"GET /v1/status HTTP/1.1\r\nHost: whatever\r\nConnection: close\r\n\r\n")
        .await
        .expect("sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).await.expect("an answer");
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
}
