//! Skills in archives.

use std::io::{Cursor, Read as _, Write as _};

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use zip::write::SimpleFileOptions;
use zip::{ZipArchive, ZipWriter};

use crate::api::{Api, answer, refused};
use crate::skills::packages::{SKILLS, create, names, with_skill};

fn archive(files: &[(&str, &str)]) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, text) in files {
        zip.start_file(*name, SimpleFileOptions::default())
            .expect("started");
        zip.write_all(text.as_bytes()).expect("written");
    }
    zip.finish().expect("finished").into_inner()
}

fn entry(name: &str) -> String {
    format!("---\nname: {name}\ndescription: The skill {name}\n---\n\nDo it.\n")
}

fn three() -> Vec<u8> {
    archive(&[
        ("all/pdf/SKILL.md", &entry("pdf")),
        ("all/pdf/scripts/read.py", "print(1)"),
        ("all/office/csv/SKILL.md", &entry("csv")),
        ("all/office/xls/SKILL.md", &entry("xls")),
        ("all/README.md", "about"),
    ])
}

async fn install(api: &Api, query: &str, body: Vec<u8>) -> (StatusCode, Value) {
    let request = api
        .request(Method::POST, &format!("{SKILLS}/install?{query}"))
        .header("content-type", "application/zip")
        .body(body);
    answer(request).await
}

#[tokio::test]
async fn one_skill_needs_no_choice() {
    let api = Api::start().await;
    let body = archive(&[
        ("pdf/SKILL.md", &entry("pdf")),
        ("pdf/assets/a.bin", "\0\u{1}\u{2}"),
    ]);
    let (status, intake) = install(&api, "filename=download.zip", body).await;
    assert_eq!(status, 201, "{intake}");
    assert_eq!(intake["planned"], json!([]));
    assert_eq!(intake["installed"][0]["name"], "pdf");
    assert_eq!(names(&api).await, ["pdf"]);
    let file = api.request(Method::GET, "/v1/skills/pdf/files/assets/a.bin");
    let bytes = file.send().await.expect("an answer").bytes().await;
    assert_eq!(&bytes.expect("bytes")[..], b"\0\x01\x02");
}

#[tokio::test]
async fn a_preview_lists_the_skills_of_an_archive() {
    let api = Api::start().await;
    let (status, plan) = install(&api, "preview=true", three()).await;
    assert_eq!(status, 200, "{plan}");
    let seen: Vec<_> = plan["planned"]
        .as_array()
        .expect("planned")
        .iter()
        .map(|found| {
            let word = |key: &str| found[key].as_str().expect(key).to_owned();
            (word("name"), word("source_path"))
        })
        .collect();
    let expected = [("csv", "office/csv"), ("xls", "office/xls"), ("pdf", "pdf")];
    let expected = expected.map(|(name, path)| (name.to_owned(), path.to_owned()));
    assert_eq!(seen, expected);
    assert_eq!(plan["installed"], json!([]));
    assert!(names(&api).await.is_empty(), "a preview installs nothing");

    let several = install(&api, "", three()).await;
    refused(&several, 400, "validation_error");
    let message = several.1["error"]["message"].as_str().expect("words");
    assert!(message.contains("office/csv"), "{message}");
    let wrong = install(&api, "source_path=nope", three()).await;
    refused(&wrong, 400, "validation_error");
    assert!(names(&api).await.is_empty());

    let query = "source_path=pdf&source_path=office%2Fcsv";
    let (status, intake) = install(&api, query, three()).await;
    assert_eq!(status, 201, "{intake}");
    assert_eq!(names(&api).await, ["csv", "pdf"]);
    // Each in a directory of its own name, so that no rule is broken by the way it came.
    for skill in intake["installed"].as_array().expect("installed") {
        assert_eq!(skill["warnings"], json!([]), "{skill}");
    }
    let (status, _) = install(&api, "source_subdir=office&source_path=xls", three()).await;
    assert_eq!(status, 201);
    assert_eq!(names(&api).await, ["csv", "pdf", "xls"]);
}

#[tokio::test]
async fn a_name_in_use_refuses_the_whole_selection() {
    let api = with_skill("csv").await;
    let query = "source_path=pdf&source_path=office%2Fcsv";
    refused(
        &install(&api, query, three()).await,
        409,
        "validation_error",
    );
    assert_eq!(names(&api).await, ["csv"]);
    // A directory that is in the way is found only while installing; what went before is undone.
    std::fs::create_dir_all(api.daemon.state_dir().join("skills/xls")).expect("a directory");
    let query = "source_path=pdf&source_path=office%2Fxls";
    let taken = install(&api, query, three()).await;
    refused(&taken, 409, "validation_error");
    assert_eq!(names(&api).await, ["csv"]);
    let query = "source_path=pdf&source_path=office%2Fxls&target_suffix=v2";
    let (status, intake) = install(&api, query, three()).await;
    assert_eq!(status, 201, "{intake}");
    assert_eq!(names(&api).await, ["csv", "pdf", "xls"]);
}

#[tokio::test]
async fn a_skill_can_be_installed_under_another_name() {
    let api = with_skill("pdf").await;
    let body = || archive(&[("SKILL.md", &entry("pdf")), ("a.txt", "a")]);
    let (status, intake) = install(&api, "name=pdf-next", body()).await;
    assert_eq!(status, 201, "{intake}");
    assert_eq!(intake["installed"][0]["name"], "pdf-next");
    let (_, skill) = api.get("/v1/skills/pdf-next").await;
    assert_eq!(skill["description"], "The skill pdf");
    assert_eq!(skill["instructions"], "Do it.\n");
    assert_eq!(skill["warnings"], json!([]), "{skill}");
    let (_, first) = api.get("/v1/skills/pdf").await;
    assert_eq!(first["description"], "Reads files", "untouched");
    for (query, status) in [
        ("name=pdf", 409),
        ("name=", 400),
        ("name=..%2Fx", 400),
        ("name=a%20b", 400),
    ] {
        refused(
            &install(&api, query, body()).await,
            status,
            "validation_error",
        );
    }
    refused(
        &install(
            &api,
            "name=x&source_path=pdf&source_path=office/csv",
            three(),
        )
        .await,
        400,
        "validation_error",
    );
    assert_eq!(names(&api).await, ["pdf", "pdf-next"]);
}

#[tokio::test]
async fn a_skill_that_cannot_be_renamed_is_not_installed() {
    let api = Api::start().await;
    let body = archive(&[("SKILL.md", "---\n{name: pdf}\n---\n\nDo it.\n")]);
    let refusal = install(&api, "name=other", body).await;
    refused(&refusal, 400, "validation_error");
    assert!(names(&api).await.is_empty());
}

#[tokio::test]
async fn what_is_exported_can_be_installed_elsewhere() {
    let api = with_skill("pdf").await;
    let bytes: Vec<u8> = (0..=255).collect();
    let put = api
        .request(Method::PUT, "/v1/skills/pdf/files/assets/all.bin")
        .body(bytes.clone());
    assert_eq!(answer(put).await.0, 201);
    let export = || async {
        let request = api.request(Method::GET, "/v1/skills/pdf/export");
        let response = request.send().await.expect("an answer");
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "application/zip");
        response.bytes().await.expect("bytes").to_vec()
    };
    let exported = export().await;
    let mut zip = ZipArchive::new(Cursor::new(exported.clone())).expect("a zip");
    let index = (0..zip.len())
        .find(|index| {
            let entry = zip.by_index(*index).expect("an entry");
            entry.name().expect("a name").ends_with("assets/all.bin")
        })
        .expect("the file is in it");
    let mut found = Vec::new();
    zip.by_index(index)
        .expect("the file")
        .read_to_end(&mut found)
        .expect("read");
    assert!(found == bytes, "the bytes differ");

    let other = Api::start().await;
    let (status, intake) = install(&other, "filename=pdf.zip", exported).await;
    assert_eq!(status, 201, "{intake}");
    let (_, skill) = other.get("/v1/skills/pdf").await;
    assert_eq!(skill["instructions"], "Read them.");
}

#[tokio::test]
async fn hostile_archives_change_nothing() {
    let api = with_skill("pdf").await;
    let store = api.daemon.state_dir().join("skills");
    let good = entry("evil");
    let mut linked = ZipWriter::new(Cursor::new(Vec::new()));
    linked
        .start_file("evil/SKILL.md", SimpleFileOptions::default())
        .expect("started");
    linked.write_all(good.as_bytes()).expect("written");
    linked
        .add_symlink("evil/door", "/etc", SimpleFileOptions::default())
        .expect("a link");
    let linked = linked.finish().expect("finished").into_inner();
    let cases = [
        (
            "slip",
            archive(&[("evil/SKILL.md", &good), ("../../canary", "x")]),
        ),
        (
            "absolute",
            archive(&[("evil/SKILL.md", &good), ("/tmp/canary", "x")]),
        ),
        (
            "deep slip",
            archive(&[("evil/SKILL.md", &good), ("evil/a/../../../canary", "x")]),
        ),
        (
            "backslash",
            archive(&[("evil/SKILL.md", &good), ("..\\..\\canary", "x")]),
        ),
        ("link", linked),
        ("empty", Vec::new()),
        ("text", b"not an archive".to_vec()),
        ("half", three()[..200].to_vec()),
        ("no skill", archive(&[("a/b.txt", "x")])),
        (
            "bad front matter",
            archive(&[("evil/SKILL.md", "---\nname: [\n---\n")]),
        ),
    ];
    for (what, bytes) in cases {
        for query in ["", "preview=true"] {
            let (status, body) = install(&api, query, bytes.clone()).await;
            assert_eq!(status, 400, "{what} {query}: {body}");
            assert_eq!(body["error"]["code"], "validation_error", "{what}");
        }
    }
    assert_eq!(names(&api).await, ["pdf"]);
    assert!(!api.daemon.state_dir().join("canary").exists());
    assert!(!std::path::Path::new("/tmp/canary").exists());
    let mut left: Vec<_> = std::fs::read_dir(store)
        .expect("the store")
        .map(|entry| entry.expect("an entry").file_name())
        .filter(|name| !name.to_string_lossy().starts_with('.'))
        .collect();
    left.sort();
    assert_eq!(left, ["pdf"]);
}

#[tokio::test]
async fn archives_are_limited_in_size() {
    let api = Api::start_with(|config| {
        config.skills.limits.max_zip_bytes = 4096;
        config.skills.limits.max_unpacked_bytes = 20_000;
    })
    .await;
    // Random enough not to shrink.
    let mut state = 1_u32;
    let noise: String = (0..6000)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            char::from(b'!' + u8::try_from(state >> 24).expect("a byte") % 90)
        })
        .collect();
    let packed = archive(&[("a/SKILL.md", &entry("a")), ("a/noise", &noise)]);
    assert!(packed.len() > 4096);
    refused(&install(&api, "", packed).await, 413, "payload_too_large");
    let bomb = archive(&[
        ("b/SKILL.md", &entry("b")),
        ("b/zeros", &"0".repeat(40_000)),
    ]);
    assert!(bomb.len() < 4096);
    refused(&install(&api, "", bomb).await, 413, "payload_too_large");
    assert!(names(&api).await.is_empty());
}

#[tokio::test]
async fn queries_and_content_types_are_strict() {
    let api = Api::start().await;
    create(&api, "pdf").await;
    for query in [
        "path=x",
        "preview=yes",
        "filename=a&filename=b",
        "source_subdir=..",
        "source_subdir=nope",
        "target_suffix=..%2Fx",
    ] {
        refused(
            &install(&api, query, three()).await,
            400,
            "validation_error",
        );
    }
    for kind in ["text/plain", "application/json", "multipart/form-data"] {
        let request = api
            .request(Method::POST, "/v1/skills/install")
            .header("content-type", kind)
            .body(three());
        refused(&answer(request).await, 400, "validation_error");
    }
    let request = api
        .request(Method::POST, "/v1/skills/install")
        .body(three());
    refused(&answer(request).await, 400, "validation_error");
    assert_eq!(names(&api).await, ["pdf"]);
}
