//! Hostile input: the documented error or a correct answer, always JSON,
//! never a hang, and afterwards the daemon is as well as before.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::api::{Api, answer, refused};

const EXEC: &str = "/v1/sessions/h/exec";

#[tokio::test]
async fn bodies_that_are_not_the_expected_json_are_refused() {
    let api = Api::start().await;
    let deep = format!("{{\"env\":{}", "[".repeat(100_000));
    for body in [
        "{",
        "not json",
        "[]",
        "[\"a\", \"b\"]",
        "null",
        "\"text\"",
        "17",
        "{\"cmd\": 1}",
        "{\"cmd\": null}",
        "{\"cmd\": [\"a\"]}",
        "{\"cmd\": \"a\", \"cmd\": \"b\"}",
        "{\"cmd\": \"a\", \"nope\": 1}",
        "{\"cmd\": \"a\", \"env\": {\"A\": 1}}",
        "{\"cmd\": \"a\", \"env\": {\"A\": \"x\\u0000y\"}}",
        "{\"cmd\": \"a\", \"env\": {\"A=B\": \"x\"}}",
        "{\"cmd\": \"a\", \"env\": []}",
        "{\"cmd\": \"a\", \"network\": true}",
        "{\"cmd\": \"a\", \"network\": \"maybe\"}",
        "{\"cmd\": \"a\", \"cpus\": 1e999}",
        "{\"cmd\": \"a\", \"cpus\": -1e999}",
        "{\"cmd\": \"a\", \"cpus\": NaN}",
        "{\"cmd\": \"a\", \"cpus\": Infinity}",
        "{\"cmd\": \"a\", \"cpus\": \"inf\"}",
        "{\"cmd\": \"a\", \"cpus\": 0}",
        "{\"cmd\": \"a\", \"cpus\": 1e300}",
        "{\"cmd\": \"a\", \"memory_mb\": 1}",
        "{\"cmd\": \"a\", \"memory_mb\": -5}",
        "{\"cmd\": \"a\", \"memory_mb\": 99999999999999999999999}",
        "{\"cmd\": \"a\", \"memory_mb\": 18446744073709551615}",
        "{\"cmd\": \"a\", \"timeout_sec\": 0}",
        "{\"cmd\": \"a\", \"timeout_sec\": 9.5}",
        "{\"cmd\": \"a\", \"timeout_sec\": \"soon\"}",
        "{\"cmd\": \"a\", \"pids_limit\": 0}",
        "{\"cmd\": \"a\", \"workdir\": \"relative\"}",
        "{\"cmd\": \"a\", \"profile\": \"nope\"}",
        "{\"cmd\": \"a\", \"require\": [\"magic\"]}",
        "{\"cmd\": \"a\\u0000b\"}",
        "{\"cmd\": \"\\ud800\"}",
        "{\"cmd\": \"\"}",
        "{\"cmd\": \"  \\n \"}",
        "{}",
        "",
        deep.as_str(),
    ] {
        let got = api.post_text(EXEC, body.to_owned()).await;
        let shown: String = body.chars().take(80).collect();
        assert_eq!(got.0, StatusCode::BAD_REQUEST, "{shown}: {}", got.1);
        refused(&got, 400, "validation_error");
    }
    let bytes = b"{\"cmd\": \"\xff\xfe\"}".to_vec();
    refused(&api.post_text(EXEC, bytes).await, 400, "validation_error");
    assert!(
        api.backend.boxes().is_empty(),
        "nothing was started for any of these"
    );
}

#[tokio::test]
async fn a_long_command_is_a_400_and_a_huge_body_a_413() {
    let api = Api::start().await;
    let ten_megabytes = json!({"cmd": format!("true #{}", "x".repeat(10_000_000))});
    refused(
        &api.post(EXEC, &ten_megabytes).await,
        400,
        "validation_error",
    );
    let thirty = json!({"cmd": "x".repeat(30_000_000)}).to_string();
    refused(
        &api.post_text(EXEC, thirty.clone()).await,
        413,
        "payload_too_large",
    );
    // The same without an announced length.
    let chunks: Vec<Result<Vec<u8>, std::io::Error>> = thirty
        .into_bytes()
        .chunks(1 << 20)
        .map(|chunk| Ok(chunk.to_vec()))
        .collect();
    let body = reqwest::Body::wrap_stream(futures_util::stream::iter(chunks));
    refused(&api.post_text(EXEC, body).await, 413, "payload_too_large");
    // A command of a size that is allowed runs.
    let long = json!({"cmd": format!("echo ok #{}", "x".repeat(900_000))});
    let (status, result) = api.post(EXEC, &long).await;
    assert_eq!(status, 200, "{result}");
    assert_eq!(result["stdout"], "ok\n");
}

#[tokio::test]
async fn errors_of_unknown_paths_are_json() {
    let api = Api::start().await;
    for path in [
        "/",
        "/v1",
        "/v1/sessions/",
        "/v2/sessions",
        "/v1/sessions/a/b/c/d",
    ] {
        refused(&api.get(path).await, 404, "not_found");
    }
    for (method, path) in [
        (Method::PUT, "/v1/sessions"),
        (Method::PATCH, "/v1/sessions/a"),
        (Method::GET, "/v1/sessions/a/exec"),
        (Method::DELETE, "/v1/status"),
        (Method::OPTIONS, "/v1/sessions"),
    ] {
        refused(&answer(api.request(method, path)).await, 405, "not_found");
    }
    let long_id = "x".repeat(257);
    for id in ["%00", "a%0Ab", "%20", "%FF%FE", long_id.as_str()] {
        let got = api.get(&format!("/v1/sessions/{id}")).await;
        refused(&got, 400, "validation_error");
    }
    for target in ["/v1/sessions/%zz", "/v1/sessions/%", "/v1/sessions/%2"] {
        let text = api
            .raw(
                format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                    .as_bytes(),
            )
            .await;
        assert!(text.starts_with("HTTP/1.1 400"), "{target}: {text}");
        assert!(text.contains("validation_error"), "{text}");
    }
    for path in [
        "/v1/sessions/a/managed-process/ws",
        "/v1/sessions/a/exec/ws",
    ] {
        api.post("/v1/sessions/a", &json!({})).await;
        api.post("/v1/sessions/a/managed-process", &json!({"command": "cat"}))
            .await;
        refused(&api.get(path).await, 400, "validation_error");
    }
}

#[tokio::test]
async fn forms_and_plain_text_are_not_json() {
    let api = Api::start().await;
    for kind in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "",
    ] {
        let request = api
            .request(Method::POST, EXEC)
            .header("content-type", kind)
            .body("{\"cmd\": \"true\"}");
        refused(&answer(request).await, 400, "validation_error");
    }
    let request = api.request(Method::POST, EXEC).body("{\"cmd\": \"true\"}");
    assert_eq!(answer(request).await.0, 200);
}

#[tokio::test]
async fn malformed_requests_do_not_affect_the_daemon() {
    let api = Api::start().await;
    let many_headers = format!(
        "GET /v1/status HTTP/1.1\r\nHost: localhost\r\n{}\r\n",
        "X-A: 1\r\n".repeat(500)
    );
    let long_header = format!(
        "GET /v1/status HTTP/1.1\r\nHost: localhost\r\nX-A: {}\r\n\r\n",
        "x".repeat(1 << 20)
    );
    for bytes in [
        b"\0\0\0\0\r\n\r\n".as_slice(),
        b"GET\r\n\r\n",
        b"GET /v1/status HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"POST /v1/sessions/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/sessions/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
        b"POST /v1/sessions/x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\nzz\r\n",
        many_headers.as_bytes(),
        long_header.as_bytes(),
    ] {
        let mut stream = tokio::net::TcpStream::connect(api.daemon.address())
            .await
            .expect("a connection");
        let _ = stream.write_all(bytes).await;
        let _ = stream.shutdown().await;
        let mut got = Vec::new();
        let _ = tokio::time::timeout(
            std::time::Duration::from_secs(10),
            stream.read_to_end(&mut got),
        )
        .await
        .expect("an end");
        let text = String::from_utf8_lossy(&got);
        assert!(
            text.is_empty() || !text.starts_with("HTTP/1.1 2"),
            "{text}"
        );
    }
    assert_eq!(api.get("/v1/status").await.0, 200);
    assert_eq!(api.get("/v1/sessions").await.1, json!([]));
}

#[tokio::test]
async fn contradicting_repeated_headers_are_refused() {
    let api = Api::start().await;
    let get = async |headers: &str| {
        api.raw(format!("GET /v1/status HTTP/1.1\r\n{headers}Connection: close\r\n\r\n").as_bytes())
            .await
    };
    let ok = get("Host: localhost\r\nHost: localhost\r\n").await;
    assert!(ok.starts_with("HTTP/1.1 200"), "{ok}");
    let two = get("Host: localhost\r\nHost: evil.example\r\n").await;
    assert!(two.starts_with("HTTP/1.1 403"), "{two}");
    let none = get("").await;
    assert!(none.starts_with("HTTP/1.1 403"), "{none}");
    let body = "{\"cmd\":\"true\"}";
    let types = api
        .raw(
            format!(
                "POST {EXEC} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            )
            .as_bytes(),
        )
        .await;
    assert!(types.starts_with("HTTP/1.1 400"), "{types}");
}

#[tokio::test]
async fn slow_requests_time_out() {
    let api = Api::start_with(|config| {
        config.http.header_timeout_sec = 1;
        config.http.body_timeout_sec = 1;
    })
    .await;
    // `raw` fails when there is no end within 10 s.
    let head = api.raw(b"GET /v1/status HTTP/1.1\r\nHost: local").await;
    assert!(!head.starts_with("HTTP/1.1 2"), "{head}");
    let body = api
        .raw(b"POST /v1/sessions/x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 10\r\n\r\n{")
        .await;
    assert!(body.starts_with("HTTP/1.1 408"), "{body}");
    assert!(body.contains("\"timeout\""), "{body}");
}

#[tokio::test]
async fn connections_over_the_limit_get_an_answer() {
    let api = Api::start_with(|config| config.http.max_connections = 2).await;
    let mut held = Vec::new();
    for _ in 0..2 {
        held.push(
            tokio::net::TcpStream::connect(api.daemon.address())
                .await
                .expect("a connection"),
        );
    }
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    let refusal = api
        .raw(b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await;
    assert!(refusal.starts_with("HTTP/1.1 503"), "{refusal}");
    assert!(refusal.contains("\"capacity\""), "{refusal}");
    drop(held);
    crate::api::eventually("there is room again", || async {
        let text = api
            .raw(b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            .await;
        text.starts_with("HTTP/1.1 200")
    })
    .await;
}

#[tokio::test]
async fn a_panic_is_an_internal_error_and_nothing_more() {
    let api = Api::start().await;
    api.backend.panic_in_next_start();
    let (status, body) = api.post("/v1/sessions/p", &json!({})).await;
    assert_eq!(status, 500, "{body}");
    assert_eq!(body["error"]["code"], "internal_error");
    assert_ne!(body["error"]["message"], Value::Null);
    assert_eq!(api.post("/v1/sessions/p", &json!({})).await.0, 201);
}

#[tokio::test]
async fn managed_process_specs_are_checked_too() {
    let api = Api::start().await;
    api.post("/v1/sessions/h", &json!({})).await;
    for body in [
        "{}",
        "{\"command\": \"\"}",
        "{\"command\": \"  \"}",
        "{\"command\": 1}",
        "{\"command\": \"a\\u0000\"}",
        "{\"command\": \"cat\", \"args\": [1]}",
        "{\"command\": \"cat\", \"args\": \"x\"}",
        "{\"command\": \"cat\", \"cwd\": \"relative\"}",
        "{\"command\": \"cat\", \"env\": {\"A\": null}}",
        "{\"command\": \"cat\", \"process_id\": \"\"}",
        "{\"command\": \"cat\", \"process_id\": \"a\\nb\"}",
        "{\"command\": \"cat\", \"unknown\": 1}",
        "[\"default\", \"cat\"]",
    ] {
        let got = api
            .post_text("/v1/sessions/h/managed-process", body.to_owned())
            .await;
        assert_eq!(got.0, 400, "{body}: {}", got.1);
        refused(&got, 400, "validation_error");
    }
}
