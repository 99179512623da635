//! The image store: images as unpacked directories, for backends whose boxes use a root of this machine.
//!
//! Imports an untrusted tar archive into a directory, and hands out leases that keep the directory while
//! boxes use it.
//!
//! ```text
//! images/                       flock: shared while a directory is created, exclusive to rename and clean up
//!   busybox_latest-1f3a…/       flock: shared by every box that uses it, exclusive to remove
//!     image.json                full name, size, creation time
//!     rootfs/
//!   .new-…/                     a running import (locked), or a leftover of a killed one (unlocked)
//!   .gone-…/                    removed, waiting for the last box that uses it
//! ```

mod async_reader;
mod entry_path;
mod leftovers;
mod record;
mod store_dir;
mod tar_fault;
mod tar_stream;
mod unpack;

#[cfg(test)]
mod archives_for_tests;
#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod store_tests;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use boxwood_api::{DEFAULT_IMAGES, ImageInfo, ImageName};
use boxwood_backend::{BoxFuture, ImageArchive, ImageError, Images, Progress};
use boxwood_policy::HOST_IMAGE;

use async_reader::blocking_reader;
pub use store_dir::ImageLease;
use store_dir::StoreDir;
use unpack::Limits;
pub(crate) use unpack::Owners;

/// A box that has just ended releases its image a moment later.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);
const RETRIES: usize = 15;

/// The images below one state directory. Several backends and processes may share it.
#[derive(Clone)]
pub struct ImageStore {
    store_dir: Arc<StoreDir>,
    backend: &'static str,
    owners: Owners,
    limits: Limits,
}

impl ImageStore {
    /// Creates no directory: a store without images need not exist.
    pub fn new(state_dir: &Path, backend: &'static str) -> Self {
        Self {
            store_dir: Arc::new(StoreDir::new(state_dir.join("images"))),
            backend,
            owners: Owners::of_this_process(),
            limits: Limits::default(),
        }
    }

    /// Removes leftovers of killed imports on a background thread.
    pub fn remove_leftovers_later(&self) {
        let leftovers = self.store_dir.leftovers();
        if leftovers.is_ok_and(|leftovers| !leftovers.is_empty()) {
            let store_dir = Arc::clone(&self.store_dir);
            std::thread::spawn(move || leftovers::remove(&store_dir));
        }
    }

    /// Finds an image; it is kept while the lease exists.
    pub fn find(&self, name: &str) -> io::Result<Option<ImageLease>> {
        match ImageName::new(name) {
            Ok(name) => self.store_dir.find(&name.tagged()),
            // An invalid name was never imported.
            Err(_) => Ok(None),
        }
    }

    fn check_name(&self, name: &ImageName) -> Result<ImageName, ImageError> {
        let tagged = name.tagged();
        let means_host = |text: &str| text == HOST_IMAGE || DEFAULT_IMAGES.contains(&text);
        let host_tagged = tagged.as_str().strip_suffix(":latest") == Some(HOST_IMAGE);
        if host_tagged || means_host(name.as_str()) || means_host(tagged.as_str()) {
            return Err(ImageError::Reserved {
                image: name.to_string(),
                why: format!(
                    "on the {} backend this name means the host's own system directories",
                    self.backend
                ),
            });
        }
        Ok(tagged)
    }

    /// The blocking part of an import.
    fn unpack(&self, name: &ImageName, archive: impl io::Read) -> Result<ImageInfo, ImageError> {
        let pending = self
            .store_dir
            .begin()
            .map_err(io_step("create a directory"))?;
        let sizes = unpack::unpack(archive, pending.rootfs(), self.owners, &self.limits)?;
        let record = record::Record::new(name, sizes);
        pending
            .finish(&record)
            .map_err(io_step("put the image into place"))?;
        leftovers::remove(&self.store_dir);
        Ok(record.into_info(self.backend))
    }
}

fn io_step(step: &'static str) -> impl FnOnce(io::Error) -> ImageError {
    move |source| ImageError::Io {
        step: step.to_owned(),
        source,
    }
}

/// Runs blocking work on a blocking thread.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ImageError> + Send + 'static,
) -> Result<T, ImageError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(outcome) => outcome,
        Err(error) => Err(io_step("run on a blocking thread")(io::Error::other(error))),
    }
}

impl Images for ImageStore {
    fn list(&self) -> BoxFuture<'_, Result<Vec<ImageInfo>, ImageError>> {
        let store = self.clone();
        Box::pin(blocking(move || {
            let records = store
                .store_dir
                .records()
                .map_err(io_step("list the images"))?;
            let infos = records.into_iter();
            Ok(infos
                .map(|record| record.into_info(store.backend))
                .collect())
        }))
    }

    fn pull<'a>(
        &'a self,
        name: &'a ImageName,
        _progress: &'a Progress,
    ) -> BoxFuture<'a, Result<ImageInfo, ImageError>> {
        Box::pin(async move {
            Err(ImageError::Unsupported {
                what: format!("the {} backend cannot pull images", self.backend),
                hint: format!(
                    "bring its root file system with `boxwood image import TAR {name}`, \
                     or use the docker or podman backend"
                ),
            })
        })
    }

    fn import<'a>(
        &'a self,
        name: &'a ImageName,
        archive: ImageArchive,
    ) -> BoxFuture<'a, Result<ImageInfo, ImageError>> {
        Box::pin(async move {
            let name = self.check_name(name)?;
            // If this future is dropped, reading fails and the import is undone.
            let (_cancel, reader) = blocking_reader(archive);
            let store = self.clone();
            blocking(move || store.unpack(&name, reader)).await
        })
    }

    fn remove<'a>(&'a self, name: &'a ImageName) -> BoxFuture<'a, Result<(), ImageError>> {
        let (store_dir, name) = (Arc::clone(&self.store_dir), name.tagged());
        Box::pin(blocking(move || {
            let take = || store_dir.remove(&name).map_err(io_step("remove the image"));
            let mut removal = take()?;
            for _ in 0..RETRIES {
                if !matches!(removal, store_dir::Removal::InUse) {
                    break;
                }
                std::thread::sleep(RETRY_INTERVAL);
                removal = take()?;
            }
            match removal {
                store_dir::Removal::Removed => {
                    leftovers::remove(&store_dir);
                    Ok(())
                }
                store_dir::Removal::InUse => Err(ImageError::InUse {
                    image: name.to_string(),
                    why: "a box runs from it".to_owned(),
                }),
                store_dir::Removal::NotFound => Err(ImageError::NotFound {
                    image: name.to_string(),
                    hint: "`boxwood image ls` lists the images".to_owned(),
                }),
            }
        }))
    }
}
