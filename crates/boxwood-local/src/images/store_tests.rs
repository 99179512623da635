//! Names, replacement, removal and leftovers of the image store.

use std::fs;
use std::io;

use boxwood_api::{ErrorCode, ImageName};
use boxwood_backend::{ImageArchive, ImageError, Images as _, Progress};
use tokio::io::AsyncReadExt as _;

use super::ImageStore;
use super::archives_for_tests::Archive;

fn name(text: &str) -> ImageName {
    ImageName::new(text).unwrap()
}

fn archive(content: &[u8]) -> ImageArchive {
    let bytes = Archive::default().file("etc/issue", content).end();
    Box::new(io::Cursor::new(bytes))
}

fn store() -> (tempfile::TempDir, ImageStore) {
    let temp = tempfile::tempdir().unwrap();
    let store = ImageStore::new(temp.path(), "native");
    (temp, store)
}

fn issue(store: &ImageStore, name: &str) -> Option<String> {
    let lease = store.find(name).unwrap()?;
    Some(fs::read_to_string(lease.rootfs().join("etc/issue")).unwrap())
}

fn directories(temp: &tempfile::TempDir) -> usize {
    fs::read_dir(temp.path().join("images")).unwrap().count()
}

#[tokio::test]
async fn an_imported_image_is_listed_found_and_removed() {
    let (temp, store) = store();
    assert!(store.list().await.unwrap().is_empty());
    let made = store
        .import(&name("tools/box"), archive(b"one"))
        .await
        .unwrap();
    assert_eq!(
        (made.name.as_str(), made.size_bytes),
        ("tools/box:latest", Some(3))
    );
    assert_eq!(store.list().await.unwrap(), [made]);
    // With and without its tag, from every store on the same directory.
    let beside = ImageStore::new(temp.path(), "nsjail");
    assert_eq!(issue(&beside, "tools/box:latest").as_deref(), Some("one"));
    assert_eq!(issue(&store, "tools/box").as_deref(), Some("one"));
    assert_eq!(issue(&store, "tools/box:other"), None);
    assert_eq!(issue(&store, "../../etc"), None);
    store.remove(&name("tools/box")).await.unwrap();
    assert_eq!((issue(&store, "tools/box"), directories(&temp)), (None, 0));
    let error = store.remove(&name("tools/box")).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::ImageNotFound);
}

#[tokio::test]
async fn a_failed_import_leaves_the_image_as_it_was() {
    let (temp, store) = store();
    store.import(&name("a"), archive(b"one")).await.unwrap();
    let cut = Archive::default().file("etc/issue", b"two").cut();
    let refused = store
        .import(&name("a"), Box::new(io::Cursor::new(cut)))
        .await;
    assert!(
        matches!(refused, Err(ImageError::BadArchive { .. })),
        "{refused:?}"
    );
    let broken = breaking_off(Archive::default().file("etc/issue", b"three").cut());
    let refused = store.import(&name("a"), broken).await;
    assert!(
        matches!(refused, Err(ImageError::BadArchive { .. })),
        "{refused:?}"
    );
    assert_eq!(
        (issue(&store, "a").as_deref(), directories(&temp)),
        (Some("one"), 1)
    );
}

/// Returns its bytes and then a connection error.
fn breaking_off(bytes: Vec<u8>) -> ImageArchive {
    let broken = Broken;
    Box::new(io::Cursor::new(bytes).chain(broken))
}

struct Broken;

impl tokio::io::AsyncRead for Broken {
    fn poll_read(
        self: std::pin::Pin<&mut Self>,
        _context: &mut std::task::Context<'_>,
        _buffer: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        std::task::Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()))
    }
}

#[tokio::test]
async fn an_image_in_use_is_kept_and_can_be_replaced() {
    let (temp, store) = store();
    store.import(&name("a"), archive(b"one")).await.unwrap();
    let lease = store.find("a").unwrap().unwrap();
    let refused = store.remove(&name("a")).await.unwrap_err();
    assert!(matches!(refused, ImageError::InUse { .. }), "{refused:?}");
    store.import(&name("a"), archive(b"two")).await.unwrap();
    assert_eq!(issue(&store, "a").as_deref(), Some("two"));
    // A box keeps the directory it started with, even if it was moved.
    let root = lease.handle().unwrap();
    let old = rustix::fs::openat(
        &root,
        "etc/issue",
        rustix::fs::OFlags::RDONLY,
        rustix::fs::Mode::empty(),
    );
    let mut text = String::new();
    io::Read::read_to_string(&mut fs::File::from(old.unwrap()), &mut text).unwrap();
    assert_eq!((text.as_str(), directories(&temp)), ("one", 2));
    drop(lease);
    store.remove(&name("a")).await.unwrap();
    assert_eq!(directories(&temp), 0);
}

#[tokio::test]
async fn leftovers_of_a_killed_import_are_removed_and_a_running_import_is_not() {
    let (temp, store) = store();
    store.import(&name("a"), archive(b"one")).await.unwrap();
    let left = temp.path().join("images/.new-1-1/rootfs/etc");
    fs::create_dir_all(&left).unwrap();
    fs::write(left.join("issue"), "half").unwrap();
    let pending = store.store_dir.begin().unwrap();
    store.remove_leftovers_later();
    for _ in 0..500 {
        if !temp.path().join("images/.new-1-1").exists() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert!(!temp.path().join("images/.new-1-1").exists());
    assert_eq!(directories(&temp), 2, "the running one stays");
    drop(pending);
    assert_eq!(
        (issue(&store, "a").as_deref(), directories(&temp)),
        (Some("one"), 1)
    );
}

#[tokio::test]
async fn a_dropped_import_leaves_no_directory() {
    let (temp, store) = store();
    // Never ends and never fails.
    let (_open, endless) = tokio::io::duplex(64);
    let importing = tokio::time::timeout(std::time::Duration::from_millis(50), async {
        store.import(&name("a"), Box::new(endless)).await
    });
    assert!(importing.await.is_err());
    for _ in 0..500 {
        if directories(&temp) == 0 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert_eq!(directories(&temp), 0);
}

#[tokio::test]
async fn names_that_mean_the_host_are_refused() {
    let (_temp, store) = store();
    for text in [
        "host",
        "host:latest",
        "python:3.11-slim",
        "rockchin/langbot-sandbox",
    ] {
        let refused = store.import(&name(text), archive(b"")).await.unwrap_err();
        assert!(
            matches!(refused, ImageError::Reserved { .. }),
            "{text}: {refused:?}"
        );
    }
}

#[tokio::test]
async fn a_pull_suggests_an_import() {
    let (_temp, store) = store();
    let refused = store
        .pull(&name("alpine"), &Progress::silent())
        .await
        .unwrap_err();
    assert_eq!(refused.code(), ErrorCode::ValidationError);
    assert!(
        refused
            .hint()
            .unwrap()
            .contains("boxwood image import TAR alpine")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_imports_and_removals_of_one_name_succeed() {
    let (temp, store) = store();
    let work = (0..24).map(|number| {
        let store = store.clone();
        tokio::spawn(async move {
            if number % 3 == 0 {
                match store.remove(&name("a")).await {
                    Ok(()) | Err(ImageError::NotFound { .. } | ImageError::InUse { .. }) => {}
                    Err(error) => panic!("{error:?}"),
                }
            } else {
                store.import(&name("a"), archive(b"same")).await.unwrap();
            }
            issue(&store, "a").is_none_or(|text| text == "same")
        })
    });
    for done in futures_util::future::join_all(work).await {
        assert!(done.unwrap(), "half an image was seen");
    }
    store.import(&name("a"), archive(b"same")).await.unwrap();
    assert_eq!(directories(&temp), 1);
}
