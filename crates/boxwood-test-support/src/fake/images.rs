//! Fake images, which have a name and a size, and a registry with the images that a test publishes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use boxwood_api::{ImageInfo, ImageName, ImageProgress, ImageSource};
use boxwood_backend::{BoxFuture, ImageArchive, ImageError, Images, Progress};
use tokio::io::AsyncReadExt as _;

use super::lock;

/// Reads an archive to its end and keeps its length.
#[derive(Default)]
pub struct FakeImages {
    images: Mutex<BTreeMap<String, u64>>,
    registry: Mutex<BTreeSet<String>>,
    in_use: Mutex<BTreeSet<String>>,
    missing: Mutex<Option<String>>,
}

impl FakeImages {
    /// From now on a pull of this name works.
    pub fn publish(&self, name: &str) {
        lock(&self.registry).insert(name.to_owned());
    }

    /// The next start of a box reports a pull of this image.
    pub fn miss(&self, name: &str) {
        *lock(&self.missing) = Some(name.to_owned());
    }

    pub(super) fn pull_what_is_missing(&self, progress: &Progress) {
        if let Some(name) = lock(&self.missing).take() {
            progress.say(&name, "fetching");
        }
    }

    /// From now on this image cannot be removed.
    pub fn hold(&self, name: &str) {
        lock(&self.in_use).insert(name.to_owned());
    }
}

fn info(name: &str, size_bytes: u64) -> ImageInfo {
    ImageInfo {
        name: name.to_owned(),
        backend: "fake".to_owned(),
        source: ImageSource::Engine,
        id: None,
        size_bytes: Some(size_bytes),
        created: None,
    }
}

impl Images for FakeImages {
    fn list(&self) -> BoxFuture<'_, Result<Vec<ImageInfo>, ImageError>> {
        let images = lock(&self.images);
        let listed = images
            .iter()
            .map(|(name, size)| info(name, *size))
            .collect();
        Box::pin(async { Ok(listed) })
    }

    fn pull<'a>(
        &'a self,
        name: &'a ImageName,
        progress: &'a Progress,
    ) -> BoxFuture<'a, Result<ImageInfo, ImageError>> {
        Box::pin(async move {
            progress.say(name.as_str(), "asking the registry");
            if !lock(&self.registry).contains(name.as_str()) {
                return Err(ImageError::Pull {
                    image: name.to_string(),
                    why: "manifest unknown".to_owned(),
                    hint: "publish it first".to_owned(),
                });
            }
            progress.report(|| ImageProgress {
                current: Some(5),
                total: Some(10),
                ..ImageProgress::new(name.as_str(), "fetching")
            });
            tokio::task::yield_now().await;
            lock(&self.images).insert(name.to_string(), 10);
            Ok(info(name.as_str(), 10))
        })
    }

    fn import<'a>(
        &'a self,
        name: &'a ImageName,
        mut archive: ImageArchive,
    ) -> BoxFuture<'a, Result<ImageInfo, ImageError>> {
        Box::pin(async move {
            let mut buffer = vec![0; 64 * 1024];
            let mut length = 0;
            loop {
                let read = archive.read(&mut buffer).await;
                match read.map_err(|source| ImageError::Io {
                    step: "read the archive".to_owned(),
                    source,
                })? {
                    0 => break,
                    count => length += count as u64,
                }
            }
            lock(&self.images).insert(name.to_string(), length);
            Ok(info(name.as_str(), length))
        })
    }

    fn remove<'a>(&'a self, name: &'a ImageName) -> BoxFuture<'a, Result<(), ImageError>> {
        Box::pin(async move {
            if lock(&self.in_use).contains(name.as_str()) {
                return Err(ImageError::InUse {
                    image: name.to_string(),
                    why: "a box runs from it".to_owned(),
                });
            }
            match lock(&self.images).remove(name.as_str()) {
                Some(_) => Ok(()),
                None => Err(ImageError::NotFound {
                    image: name.to_string(),
                    hint: "list the images".to_owned(),
                }),
            }
        })
    }
}
