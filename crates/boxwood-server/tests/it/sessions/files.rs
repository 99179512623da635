//! Files of a session.

use reqwest::{Method, StatusCode};
use serde_json::json;
use tokio::io::AsyncWriteExt as _;

use crate::api::{Api, answer, eventually, json as json_of, refused};

const FILES: &str = "/v1/sessions/f/files";

async fn with_session() -> Api {
    let api = Api::start().await;
    let (status, body) = api.post("/v1/sessions/f", &json!({})).await;
    assert_eq!(status, 201, "{body}");
    api
}

async fn put(
    api: &Api,
    query: &str,
    body: impl Into<reqwest::Body>,
) -> (StatusCode, serde_json::Value) {
    answer(
        api.request(Method::PUT, &format!("{FILES}?{query}"))
            .body(body),
    )
    .await
}

async fn read(api: &Api, path: &str, range: Option<&str>) -> (StatusCode, Vec<u8>, Option<String>) {
    let mut request = api.request(Method::GET, &format!("{FILES}?path={path}"));
    if let Some(range) = range {
        request = request.header("range", range);
    }
    let response = request.send().await.expect("an answer");
    let status = response.status();
    let content_range = response
        .headers()
        .get("content-range")
        .map(|value| value.to_str().expect("text").to_owned());
    let bytes = response.bytes().await.expect("bytes").to_vec();
    (status, bytes, content_range)
}

#[tokio::test]
async fn a_file_is_written_read_moved_and_removed() {
    let api = with_session().await;
    let (status, entry) = put(
        &api,
        "path=/workspace/a.bin&mode=0600",
        b"\x00\xff12".to_vec(),
    )
    .await;
    assert_eq!(status, 201, "{entry}");
    assert_eq!(entry["size"], 4);
    assert_eq!(entry["kind"], "file");
    assert_eq!(entry["mode"], 0o600);
    let (status, bytes, _) = read(&api, "/workspace/a.bin", None).await;
    assert_eq!((status.as_u16(), bytes), (200, b"\x00\xff12".to_vec()));
    // Replacing keeps the permissions.
    let (status, entry) = put(&api, "path=/workspace/a.bin", "new").await;
    assert_eq!((status.as_u16(), &entry["mode"]), (201, &json!(0o600)));
    let (status, entry) = api
        .post(
            &format!("{FILES}/move"),
            &json!({"from": "/workspace/a.bin", "to": "/workspace/b.bin"}),
        )
        .await;
    assert_eq!(status, 200, "{entry}");
    assert_eq!(entry["name"], "b.bin");
    refused(
        &api.get(&format!("{FILES}?path=/workspace/a.bin")).await,
        404,
        "not_found",
    );
    put(&api, "path=/workspace/c.bin", "c").await;
    let onto = json!({"from": "/workspace/c.bin", "to": "/workspace/b.bin"});
    refused(
        &api.post(&format!("{FILES}/move"), &onto).await,
        400,
        "validation_error",
    );
    let (status, deleted) = api.delete(&format!("{FILES}?path=/workspace/b.bin")).await;
    assert_eq!(status, 200);
    assert_eq!(deleted, json!({"deleted": "/workspace/b.bin"}));
    refused(
        &api.delete(&format!("{FILES}?path=/workspace/b.bin")).await,
        404,
        "not_found",
    );
}

#[tokio::test]
async fn directories_are_made_listed_and_removed() {
    let api = with_session().await;
    let mkdir = async |body| api.post(&format!("{FILES}/mkdir"), &body).await;
    let (status, entry) = mkdir(json!({"path": "/workspace/d/e", "parents": true})).await;
    assert_eq!(status, 201, "{entry}");
    assert_eq!(entry["kind"], "directory");
    assert_eq!(
        mkdir(json!({"path": "/workspace/d/e", "parents": true}))
            .await
            .0,
        201
    );
    refused(
        &mkdir(json!({"path": "/workspace/d/e"})).await,
        400,
        "validation_error",
    );
    refused(
        &mkdir(json!({"path": "/workspace/x/y"})).await,
        404,
        "not_found",
    );
    refused(
        &mkdir(json!({"path": "relative"})).await,
        400,
        "validation_error",
    );
    refused(
        &mkdir(json!({"path": "/a", "nope": 1})).await,
        400,
        "validation_error",
    );
    for name in ["b", "a", "c"] {
        put(&api, &format!("path=/workspace/d/{name}"), name).await;
    }
    let (status, list) = api.get(&format!("{FILES}/list?path=/workspace/d")).await;
    assert_eq!(status, 200);
    let names = |list: &serde_json::Value| -> Vec<String> {
        list["entries"]
            .as_array()
            .expect("entries")
            .iter()
            .map(|entry| entry["name"].as_str().expect("a name").to_owned())
            .collect()
    };
    assert_eq!(names(&list), ["a", "b", "c", "e"]);
    assert_eq!(list["truncated"], false);
    let (_, list) = api
        .get(&format!("{FILES}/list?path=/workspace/d&limit=2"))
        .await;
    assert_eq!(names(&list), ["a", "b"]);
    assert_eq!(list["truncated"], true);
    refused(
        &api.get(&format!("{FILES}/list?path=/workspace/d&limit=0"))
            .await,
        400,
        "validation_error",
    );
    refused(
        &api.get(&format!("{FILES}/list?path=/workspace/d/a")).await,
        400,
        "validation_error",
    );
    refused(
        &api.delete(&format!("{FILES}?path=/workspace/d")).await,
        400,
        "validation_error",
    );
    let (status, _) = api
        .delete(&format!("{FILES}?path=/workspace/d&recursive=true"))
        .await;
    assert_eq!(status, 200);
    refused(
        &api.get(&format!("{FILES}/stat?path=/workspace/d")).await,
        404,
        "not_found",
    );
}

#[tokio::test]
async fn ranges_are_served() {
    let api = with_session().await;
    put(&api, "path=/workspace/r", "0123456789").await;
    for (range, status, bytes, content_range) in [
        ("bytes=0-3", 206, "0123", Some("bytes 0-3/10")),
        ("bytes=7-", 206, "789", Some("bytes 7-9/10")),
        ("bytes=-2", 206, "89", Some("bytes 8-9/10")),
        ("bytes=0-0,2-3", 200, "0123456789", None),
        ("nonsense", 200, "0123456789", None),
    ] {
        let got = read(&api, "/workspace/r", Some(range)).await;
        assert_eq!(got.0.as_u16(), status, "{range}");
        assert_eq!(got.1, bytes.as_bytes(), "{range}");
        assert_eq!(got.2.as_deref(), content_range, "{range}");
    }
    let response = api
        .request(Method::GET, &format!("{FILES}?path=/workspace/r"))
        .header("range", "bytes=10-")
        .send()
        .await
        .expect("an answer");
    assert_eq!(response.headers()["content-range"], "bytes */10");
    refused(&json_of(response).await, 416, "validation_error");
    let head = api
        .request(Method::HEAD, &format!("{FILES}?path=/workspace/r"))
        .send()
        .await
        .expect("an answer");
    assert_eq!(head.status(), 200);
    assert_eq!(head.headers()["content-length"], "10");
    assert_eq!(head.headers()["accept-ranges"], "bytes");
    assert_eq!(head.headers()["x-content-type-options"], "nosniff");
}

#[tokio::test]
async fn large_files_stream_both_ways() {
    let api = with_session().await;
    // Larger than any JSON body may be.
    let chunk: Vec<u8> = (0..=255).cycle().take(1 << 20).collect();
    let count = 40;
    let chunks = (0..count).map({
        let chunk = chunk.clone();
        move |_| Ok::<_, std::io::Error>(chunk.clone())
    });
    let body = reqwest::Body::wrap_stream(futures_util::stream::iter(chunks));
    let (status, entry) = put(&api, "path=/workspace/deep/er/large&parents=true", body).await;
    assert_eq!(status, 201, "{entry}");
    assert_eq!(entry["size"], count << 20);
    let (status, bytes, _) = read(&api, "/workspace/deep/er/large", None).await;
    assert_eq!(status, 200);
    assert_eq!(bytes.len(), count << 20);
    assert!(bytes.chunks(1 << 20).all(|got| got == chunk));
    let (_, bytes, _) = read(
        &api,
        "/workspace/deep/er/large",
        Some("bytes=20971530-20971539"),
    )
    .await;
    assert_eq!(bytes, (10..20).collect::<Vec<u8>>());
}

#[tokio::test]
async fn a_broken_upload_changes_nothing() {
    let api = with_session().await;
    put(&api, "path=/workspace/kept", "old contents").await;
    let mut stream = tokio::net::TcpStream::connect(api.daemon.address())
        .await
        .expect("a connection");
    let head = format!(
        "PUT {FILES}?path=/workspace/kept HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nnew"
    );
    stream.write_all(head.as_bytes()).await.expect("sent");
    let names = async || {
        let (_, list) = api.get(&format!("{FILES}/list?path=/workspace")).await;
        list["entries"].as_array().map_or(0, Vec::len)
    };
    eventually("the upload has begun", || async { names().await == 2 }).await;
    drop(stream);
    eventually("its rest is gone", || async { names().await == 1 }).await;
    let (_, bytes, _) = read(&api, "/workspace/kept", None).await;
    assert_eq!(bytes, b"old contents");
}

#[tokio::test]
async fn hostile_paths_are_refused() {
    let api = with_session().await;
    for path in ["", "relative", "../x", "%00", "/a%00b"] {
        for route in ["", "/list", "/stat"] {
            let got = api.get(&format!("{FILES}{route}?path={path}")).await;
            refused(&got, 400, "validation_error");
        }
    }
    let long = format!("/{}", "x".repeat(5_000));
    refused(
        &api.get(&format!("{FILES}?path={long}")).await,
        400,
        "validation_error",
    );
    refused(&api.get(FILES).await, 400, "validation_error");
    refused(
        &api.get(&format!("{FILES}?path=/a&nope=1")).await,
        400,
        "validation_error",
    );
    for path in ["/", "/workspace/", "/workspace/.", "/workspace/.."] {
        refused(
            &put(&api, &format!("path={path}"), "x").await,
            400,
            "validation_error",
        );
    }
    for mode in ["9", "7777", "rw"] {
        let got = put(&api, &format!("path=/workspace/a&mode={mode}"), "x").await;
        refused(&got, 400, "validation_error");
    }
    refused(
        &api.get(&format!("{FILES}?path=/workspace")).await,
        400,
        "validation_error",
    );
    let elsewhere = api.get("/v1/sessions/none/files?path=/workspace/a").await;
    refused(&elsewhere, 404, "session_not_found");
}
