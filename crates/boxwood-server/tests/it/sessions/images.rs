//! Images through `/v1`.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use reqwest::{Body, Method, StatusCode};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::api::{Api, answer, refused};

async fn put(api: &Api, target: &str, body: impl Into<Body>) -> (StatusCode, Value) {
    answer(api.request(Method::PUT, target).body(body)).await
}

/// The events of a pull, as name and data.
async fn pulled(api: &Api, target: &str) -> Vec<(String, Value)> {
    let response = api.request(Method::POST, target).send().await;
    let response = response.expect("an answer");
    assert_eq!(response.status(), 200);
    let text = response.text().await.expect("the whole stream");
    let blocks = text.split("\n\n").filter(|block| !block.is_empty());
    blocks
        .map(|block| {
            let field = |name: &str| {
                let line = block.lines().find_map(|line| line.strip_prefix(name));
                line.expect("a field").trim().to_owned()
            };
            let data = serde_json::from_str(&field("data:")).expect("JSON");
            (field("event:"), data)
        })
        .collect()
}

#[tokio::test]
async fn an_image_is_imported_listed_and_removed() {
    let api = Api::start().await;
    let (status, list) = api.get("/v1/images").await;
    assert_eq!((status.as_u16(), list), (200, json!({"images": []})));
    let name = "registry.example%3A5000%2Ftools%2Fpython%3A3";
    let (status, info) = put(&api, &format!("/v1/images/{name}"), vec![7; 100_000]).await;
    assert_eq!(status, 201, "{info}");
    let expected = json!({
        "name": "registry.example:5000/tools/python:3", "backend": "fake", "source": "engine",
        "size_bytes": 100_000,
    });
    assert_eq!(info, expected);
    for target in ["/v1/images", "/v1/images?backend=fake"] {
        let (_, list) = api.get(target).await;
        assert_eq!(list, json!({"images": [expected]}));
    }
    let (status, deleted) = api.delete(&format!("/v1/images/{name}?backend=fake")).await;
    assert_eq!(status, 200);
    assert_eq!(
        deleted,
        json!({"deleted": "registry.example:5000/tools/python:3"})
    );
    let (status, body) = api.delete(&format!("/v1/images/{name}")).await;
    refused(&(status, body), 404, "image_not_found");
}

#[tokio::test]
async fn names_and_backends_that_make_no_sense_are_refused() {
    let api = Api::start().await;
    for bad in [
        "--privileged",
        "%2Fa",
        "a%20b",
        "a%00b",
        "A",
        "..%2Fa",
        "a%0Ab",
    ] {
        for (method, target) in [
            (Method::PUT, format!("/v1/images/{bad}")),
            (Method::DELETE, format!("/v1/images/{bad}")),
            (Method::POST, format!("/v1/images/{bad}/pull")),
        ] {
            let (status, body) = answer(api.request(method, &target)).await;
            refused(&(status, body.clone()), 400, "validation_error");
            assert!(
                body["error"]["hint"]
                    .as_str()
                    .is_some_and(|hint| hint.contains("busybox"))
            );
        }
    }
    for target in ["/v1/images?backend=none", "/v1/images?bakcend=fake"] {
        refused(&api.get(target).await, 400, "validation_error");
    }
    refused(
        &put(&api, "/v1/images/a?backend=none", "").await,
        400,
        "validation_error",
    );
}

#[tokio::test]
async fn an_archive_may_be_larger_than_any_other_body() {
    let api = Api::start_with(|config| config.http.max_body_bytes = 1024).await;
    let chunks = futures_util::stream::iter((0..64).map(|_| Ok::<_, Infallible>(vec![1; 65_536])));
    let (status, info) = put(&api, "/v1/images/large", Body::wrap_stream(chunks)).await;
    assert_eq!(status, 201, "{info}");
    assert_eq!(info["size_bytes"], 64 * 65_536);
}

#[tokio::test]
async fn an_upload_that_breaks_off_makes_no_image() {
    let api = Api::start().await;
    let mut stream = TcpStream::connect(api.daemon.address())
        .await
        .expect("a connection");
    let host = api.daemon.address();
    let head =
        format!("PUT /v1/images/half HTTP/1.1\r\nhost: {host}\r\ncontent-length: 9000\r\n\r\n");
    stream.write_all(head.as_bytes()).await.expect("sent");
    stream.write_all(&[1; 4096]).await.expect("sent");
    stream.shutdown().await.expect("closed");
    let mut answer = String::new();
    // The daemon may answer or just hang up.
    let _ = stream.read_to_string(&mut answer).await;
    assert!(!answer.contains(" 201 "), "{answer}");
    tokio::time::sleep(Duration::from_millis(200)).await;
    let (_, list) = api.get("/v1/images").await;
    assert_eq!(list, json!({"images": []}));
}

#[tokio::test]
async fn an_upload_that_stalls_is_given_up() {
    let api = Api::start_with(|config| config.http.body_timeout_sec = 1).await;
    let stalled = futures_util::stream::pending::<Result<Bytes, Infallible>>();
    let (status, body) = put(&api, "/v1/images/slow", Body::wrap_stream(stalled)).await;
    refused(&(status, body), 408, "timeout");
    let (_, list) = api.get("/v1/images").await;
    assert_eq!(list, json!({"images": []}));
}

#[tokio::test]
async fn an_image_in_use_is_a_conflict() {
    let api = Api::start().await;
    assert_eq!(put(&api, "/v1/images/held", "x").await.0, 201);
    api.backend.images.hold("held");
    refused(
        &api.delete("/v1/images/held").await,
        409,
        "validation_error",
    );
}

#[tokio::test]
async fn a_pull_streams_its_progress_and_its_result() {
    let api = Api::start().await;
    api.backend.images.publish("tools/alpine:3");
    let events = pulled(&api, "/v1/images/tools%2Falpine%3A3/pull").await;
    let image = "tools/alpine:3";
    assert_eq!(
        events,
        [
            (
                "progress".to_owned(),
                json!({"image": image, "text": "asking the registry"})
            ),
            (
                "progress".to_owned(),
                json!({"image": image, "text": "fetching", "current": 5, "total": 10})
            ),
            (
                "done".to_owned(),
                json!({"name": image, "backend": "fake", "source": "engine", "size_bytes": 10})
            ),
        ]
    );
    let (_, list) = api.get("/v1/images").await;
    assert_eq!(list["images"][0]["name"], image);
}

#[tokio::test]
async fn a_pull_that_fails_says_why_in_the_registrys_words() {
    let api = Api::start().await;
    let events = pulled(&api, "/v1/images/unknown/pull").await;
    let (last, body) = events.last().expect("an end");
    assert_eq!(last, "error");
    assert_eq!(body["error"]["code"], "image_not_found");
    let message = body["error"]["message"].as_str().expect("words");
    assert!(message.contains("manifest unknown"), "{message}");
    let (_, list) = api.get("/v1/images").await;
    assert_eq!(list, json!({"images": []}));
}

#[tokio::test]
async fn a_session_that_waits_for_its_image_says_so() {
    let api = Api::start().await;
    api.backend.images.miss("tools/alpine:3");
    let mut events = api
        .request(Method::GET, "/v1/events")
        .send()
        .await
        .expect("a stream");
    assert_eq!(api.post("/v1/sessions/s", &json!({})).await.0, 201);
    let mut text = String::new();
    while !text.contains("event: session_created") {
        let chunk = tokio::time::timeout(Duration::from_secs(10), events.chunk()).await;
        let chunk = chunk
            .expect("an event within 10 s")
            .expect("bytes")
            .expect("no end");
        text.push_str(&String::from_utf8_lossy(&chunk));
    }
    let (first, _) = text.split_once("\n\n").expect("two events");
    assert!(first.contains("event: image_pull"), "{text}");
    let data = first
        .lines()
        .find_map(|line| line.strip_prefix("data:"))
        .expect("data");
    let mut data: Value = serde_json::from_str(data).expect("JSON");
    data["at"].take();
    assert_eq!(
        data,
        json!({"at": null, "session_id": "s", "event": "image_pull", "image": "tools/alpine:3", "text": "fetching"})
    );
}
