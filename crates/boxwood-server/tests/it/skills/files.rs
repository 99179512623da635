//! The files of skills.

use std::os::unix::fs::symlink;

use futures_util::stream;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::api::{Api, answer, refused};
use crate::skills::packages::{create, with_skill};

const FILES: &str = "/v1/skills/pdf/files";

async fn put(
    api: &Api,
    path: &str,
    body: impl Into<reqwest::Body>,
    if_match: Option<&str>,
) -> (StatusCode, Value) {
    let mut request = api.request(Method::PUT, &format!("{FILES}/{path}"));
    if let Some(tag) = if_match {
        request = request.header("if-match", tag);
    }
    answer(request.body(body)).await
}

async fn read(api: &Api, path: &str) -> (Vec<u8>, String) {
    let request = api.request(Method::GET, &format!("{FILES}/{path}"));
    let response = request.send().await.expect("an answer");
    assert_eq!(response.status(), 200, "{path}");
    let header = |name: &str| {
        let value = response.headers().get(name).expect(name);
        value.to_str().expect("text").to_owned()
    };
    assert_eq!(header("content-type"), "application/octet-stream");
    assert_eq!(header("x-content-type-options"), "nosniff");
    assert_eq!(header("content-disposition"), "attachment");
    let tag = header("etag");
    (response.bytes().await.expect("bytes").to_vec(), tag)
}

#[tokio::test]
async fn file_contents_are_stored_unchanged() {
    let api = with_skill("pdf").await;
    let bytes: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    let (status, written) = put(&api, "assets/deep/a%20b.bin", bytes.clone(), None).await;
    assert_eq!(status, 201, "{written}");
    assert_eq!(
        written,
        json!({"path": "assets/deep/a b.bin", "bytes_written": 300_000})
    );
    let (got, first) = read(&api, "assets/deep/a%20b.bin").await;
    assert!(got == bytes, "the bytes differ");
    // An encoded slash is the same path.
    let (got, encoded) = read(&api, "assets%2Fdeep%2Fa%20b.bin").await;
    assert!(got == bytes && first == encoded);
    put(&api, "assets/deep/a%20b.bin", "new", None).await;
    let (got, second) = read(&api, "assets/deep/a%20b.bin").await;
    assert_eq!(got, b"new");
    assert_ne!(first, second);
    let (status, _) = put(&api, "empty", "", None).await;
    assert_eq!(status, 201);
    assert_eq!(read(&api, "empty").await.0, b"");
}

#[tokio::test]
async fn a_changed_entry_file_changes_the_skill() {
    let api = with_skill("pdf").await;
    let text = "---\nname: pdf\ndescription: Changed by hand\nlicense: MIT\n---\n\nNew words.\n";
    put(&api, "SKILL.md", text, None).await;
    let (_, skill) = api.get("/v1/skills/pdf").await;
    assert_eq!(skill["description"], "Changed by hand");
    assert_eq!(skill["instructions"], "New words.\n");
}

#[tokio::test]
async fn a_conditional_write_fails_after_another_change() {
    let api = with_skill("pdf").await;
    put(&api, "notes", "one", None).await;
    let (_, tag) = read(&api, "notes").await;
    let (status, _) = put(&api, "notes", "two", Some(&tag)).await;
    assert_eq!(status, 201);
    let late = put(&api, "notes", "three", Some(&tag)).await;
    refused(&late, 412, "validation_error");
    assert_eq!(read(&api, "notes").await.0, b"two");
    // `*` is any file at all, and here is none.
    refused(
        &put(&api, "fresh", "x", Some("*")).await,
        412,
        "validation_error",
    );
    let (status, _) = put(&api, "notes", "four", Some("*")).await;
    assert_eq!(status, 201);

    // Of many with the same tag, one wins.
    let (_, tag) = read(&api, "notes").await;
    let (api, tag) = (&api, &tag);
    let writes = (0..8).map(|n| async move {
        let (status, _) = put(api, "notes", format!("writer {n}"), Some(tag)).await;
        status.as_u16()
    });
    let ended = futures_util::future::join_all(writes).await;
    let won = ended.iter().filter(|status| **status == 201).count();
    let lost = ended.iter().filter(|status| **status == 412).count();
    assert_eq!((won, lost), (1, 7), "{ended:?}");
}

#[tokio::test]
async fn directories_are_listed_with_bounds() {
    let api = with_skill("pdf").await;
    for path in ["b.txt", "a/x", "a/y", ".hidden"] {
        put(&api, path, "12345", None).await;
    }
    let (status, list) = api.get(FILES).await;
    assert_eq!(status, 200, "{list}");
    let shown: Vec<_> = list["entries"]
        .as_array()
        .expect("entries")
        .iter()
        .map(|entry| entry["path"].as_str().expect("a path"))
        .collect();
    assert_eq!(shown, ["SKILL.md", "a", "b.txt"]);
    assert_eq!(list["path"], ".");
    assert_eq!(list["entries"][1]["is_dir"], true);
    assert_eq!(list["entries"][1]["size"], Value::Null);
    assert_eq!(list["entries"][2]["size"], 5);

    let (_, list) = api.get(&format!("{FILES}?include_hidden=true")).await;
    assert!(list.to_string().contains(".hidden"), "{list}");
    let (_, list) = api.get(&format!("{FILES}?path=a&max_entries=1")).await;
    assert_eq!(list["entries"].as_array().map(Vec::len), Some(1));
    assert_eq!(list["entries"][0]["path"], "a/x");
    assert_eq!(list["truncated"], true);

    for query in [
        "max_entries=0",
        "max_entries=10001",
        "max_entries=-1",
        "include_hidden=maybe",
        "depth=3",
        "path=..",
        "path=/etc",
        "path=a/../../..",
    ] {
        refused(
            &api.get(&format!("{FILES}?{query}")).await,
            400,
            "validation_error",
        );
    }
    refused(
        &api.get(&format!("{FILES}?path=nope")).await,
        404,
        "not_found",
    );
}

#[tokio::test]
async fn files_can_be_moved_and_removed_but_not_the_entry_file() {
    let api = with_skill("pdf").await;
    put(&api, "a", "1", None).await;
    put(&api, "b", "2", None).await;
    let moves = "/v1/skills/pdf/move";
    refused(
        &api.post(moves, &json!({"from": "a", "to": "b"})).await,
        409,
        "validation_error",
    );
    let body = json!({"from": "a", "to": "deep/er/a"});
    let (status, moved) = api.post(moves, &body).await;
    assert_eq!((status.as_u16(), &moved), (200, &body), "{moved}");
    assert_eq!(read(&api, "deep/er/a").await.0, b"1");
    refused(
        &api.post(moves, &json!({"from": "a", "to": "c"})).await,
        404,
        "not_found",
    );
    for body in [
        json!({"from": "SKILL.md", "to": "OTHER.md"}),
        json!({"from": "b", "to": "../b"}),
        json!({"from": "/etc/hostname", "to": "b"}),
        json!({"from": "b"}),
        json!({"from": "b", "to": "c", "overwrite": true}),
    ] {
        refused(&api.post(moves, &body).await, 400, "validation_error");
    }
    let (status, deleted) = api.delete(&format!("{FILES}/deep")).await;
    assert_eq!(
        (status.as_u16(), deleted),
        (200, json!({"deleted": "deep"}))
    );
    refused(
        &api.get(&format!("{FILES}/deep/er/a")).await,
        404,
        "not_found",
    );
    refused(&api.delete(&format!("{FILES}/a")).await, 404, "not_found");
    refused(
        &api.delete(&format!("{FILES}/SKILL.md")).await,
        400,
        "validation_error",
    );
    assert_eq!(api.get("/v1/skills/pdf").await.0, 200);
}

#[tokio::test]
async fn no_path_leads_out_of_the_package() {
    let api = with_skill("pdf").await;
    create(&api, "other").await;
    let outside = tempfile::tempdir().expect("a temporary directory");
    let secret = outside.path().join("secret");
    std::fs::write(&secret, "keep out").expect("written");
    let package = api.daemon.state_dir().join("skills/pdf");
    symlink(&secret, package.join("link")).expect("link");
    symlink(outside.path(), package.join("door")).expect("link");
    symlink("../other", package.join("next")).expect("link");
    for path in [
        "%2E%2E%2Fother%2FSKILL.md",
        "a%2F..%2F..%2F..%2Ftokens.toml",
        "%2Fetc%2Fhostname",
        "link",
        "door%2Fsecret",
        "door%2Fnew",
        "next%2FSKILL.md",
        "a%00b",
    ] {
        let target = format!("{FILES}/{path}");
        let (status, body) = api.get(&target).await;
        assert!(
            matches!(status.as_u16(), 400 | 404),
            "{path}: {status} {body}"
        );
        let (status, body) = put(&api, path, "stolen", None).await;
        // A link itself may be replaced by a file of the package; it is never written through.
        if path != "link" {
            assert!(status.is_client_error(), "{path}: {status} {body}");
        }
    }
    // A request line that no client would send: the daemon has to see the dots as they are.
    for path in [
        "../other/SKILL.md",
        "%2e%2e/other/SKILL.md",
        "/etc/hostname",
    ] {
        let request =
            format!("GET {FILES}/{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let response = api.raw(request.as_bytes()).await;
        assert!(
            response.starts_with("HTTP/1.1 400") || response.starts_with("HTTP/1.1 404"),
            "{path}: {response}"
        );
        assert!(!response.contains("Read them."), "{path}: {response}");
    }
    for path in ["door%2Fsecret", "next%2FSKILL.md", "%2E%2E%2Fother"] {
        let (status, body) = api.delete(&format!("{FILES}/{path}")).await;
        assert!(status.is_client_error(), "{path}: {status} {body}");
    }
    assert_eq!(std::fs::read_to_string(&secret).expect("kept"), "keep out");
    assert!(!outside.path().join("new").exists());
    let (status, other) = api.get("/v1/skills/other").await;
    assert_eq!(
        (status.as_u16(), &other["instructions"]),
        (200, &json!("Read them."))
    );
}

#[tokio::test]
async fn an_error_names_the_file_in_the_way() {
    let api = with_skill("pdf").await;
    put(&api, "dir/file", "x", None).await;
    refused(&put(&api, "dir", "x", None).await, 400, "validation_error");
    let (status, body) = put(&api, "dir/file/below", "x", None).await;
    assert!(status.is_client_error(), "{status} {body}");
    refused(&api.get(&format!("{FILES}/dir")).await, 404, "not_found");
    let long = "d/".repeat(40) + "file";
    let (status, body) = put(&api, &long, "x", None).await;
    assert!(matches!(status.as_u16(), 400 | 413), "{status} {body}");
}

#[tokio::test]
async fn files_are_limited_in_size() {
    let api = Api::start_with(|config| config.skills.limits.max_file_bytes = 1000).await;
    create(&api, "pdf").await;
    let (status, _) = put(&api, "fits", vec![b'x'; 1000], None).await;
    assert_eq!(status, 201);
    refused(
        &put(&api, "large", vec![b'x'; 1001], None).await,
        413,
        "payload_too_large",
    );
    // Without a length in front.
    let chunks = stream::iter((0..50).map(|_| Ok::<_, std::io::Error>(vec![b'x'; 100])));
    let body = reqwest::Body::wrap_stream(chunks);
    refused(
        &put(&api, "large", body, None).await,
        413,
        "payload_too_large",
    );
    let length = "PUT /v1/skills/pdf/files/large HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 99999999999\r\nExpect: 100-continue\r\n\r\n";
    let response = api.raw(length.as_bytes()).await;
    assert!(response.starts_with("HTTP/1.1 413"), "{response}");
    refused(&api.get(&format!("{FILES}/large")).await, 404, "not_found");
}
