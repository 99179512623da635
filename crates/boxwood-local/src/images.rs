//! Images as unpacked directories, for the backends whose boxes have a root of this machine.
//!
//! Comes in: a checked name, a tar archive from a stranger. Goes out: a directory that a box can have
//! under its writable layer, and a lease that keeps it there. Never here: layers, registries, which
//! image a box gets.
//!
//! ```text
//! images/                       flock: shared while a directory is being made, exclusive to sweep
//!   busybox_latest-1f3a…/       flock: shared by every box that runs from it, exclusive to remove
//!     image.json                its whole name, size, age
//!     rootfs/
//!   .new-…/                     an import under way (locked), or what a killed one left (not locked)
//!   .gone-…/                    taken away, waits for the last box that runs from it
//! ```

mod bridge;
mod entry_path;
mod limits;
mod place;
mod record;
mod sweep;
mod tar_fault;
mod tar_stream;
mod unpack;

#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod store_tests;
#[cfg(test)]
mod testing;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use boxwood_api::{DEFAULT_IMAGES, ImageInfo, ImageName};
use boxwood_backend::{BoxFuture, ImageArchive, ImageError, Images, Progress};
use boxwood_policy::HOST_IMAGE;

use bridge::bridge;
use limits::Limits;
pub use place::ImageLease;
use place::Places;
pub(crate) use unpack::Owners;

/// A box that ended a moment ago lets go of its image a moment later.
const MOMENT: Duration = Duration::from_millis(20);
const PATIENCE: usize = 15;

/// The directories and who answers for them. Several backends and processes may share a place.
#[derive(Clone)]
pub struct ImageStore {
    places: Arc<Places>,
    backend: &'static str,
    owners: Owners,
    limits: Limits,
}

impl ImageStore {
    /// Makes nothing: a place without images need not exist.
    pub fn new(state_dir: &Path, backend: &'static str) -> Self {
        Self {
            places: Arc::new(Places::new(state_dir.join("images"))),
            backend,
            owners: Owners::of_this_process(),
            limits: Limits::default(),
        }
    }

    /// Removes what killed imports left, without keeping anybody waiting.
    pub fn sweep_later(&self) {
        if self.places.has_leftovers() {
            let places = Arc::clone(&self.places);
            std::thread::spawn(move || sweep::sweep(&places));
        }
    }

    /// The image a box asked for, which stays for as long as the lease is held.
    pub fn find(&self, name: &str) -> io::Result<Option<ImageLease>> {
        match ImageName::new(name) {
            Ok(name) => self.places.find(&name.tagged()),
            // No such name could have been imported.
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
                    "on the {} backend it means the machine's own system directories",
                    self.backend
                ),
            });
        }
        Ok(tagged)
    }

    fn not_found(name: &ImageName) -> ImageError {
        ImageError::NotFound {
            image: name.to_string(),
            hint: "`boxwood image ls` lists the images".to_owned(),
        }
    }

    fn info(&self, record: record::Record) -> ImageInfo {
        record.into_info(self.backend)
    }

    /// Everything about an import that blocks.
    fn unpack(&self, name: &ImageName, archive: impl io::Read) -> Result<ImageInfo, ImageError> {
        let making = self.places.begin().map_err(io_step("make a directory"))?;
        let sizes = unpack::unpack(archive, making.rootfs(), self.owners, &self.limits)?;
        let record = record::Record::new(name, sizes);
        making
            .finish(&record)
            .map_err(io_step("put the image into place"))?;
        sweep::sweep(&self.places);
        Ok(self.info(record))
    }
}

fn io_step(step: &'static str) -> impl FnOnce(io::Error) -> ImageError {
    move |source| ImageError::Io {
        step: step.to_owned(),
        source,
    }
}

/// Runs what blocks where it may.
async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ImageError> + Send + 'static,
) -> Result<T, ImageError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(outcome) => outcome,
        Err(error) => Err(io_step("run")(io::Error::other(error))),
    }
}

impl Images for ImageStore {
    fn list(&self) -> BoxFuture<'_, Result<Vec<ImageInfo>, ImageError>> {
        let store = self.clone();
        Box::pin(aside(move || {
            let records = store.places.records().map_err(io_step("list the images"))?;
            Ok(records
                .into_iter()
                .map(|record| store.info(record))
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
            let (feed, pieces) = bridge(archive);
            let store = self.clone();
            let unpacking = aside(move || store.unpack(&name, pieces));
            // The feed ends when the archive does, or when the unpacking has heard enough.
            let ((), outcome) = tokio::join!(feed, unpacking);
            outcome
        })
    }

    fn remove<'a>(&'a self, name: &'a ImageName) -> BoxFuture<'a, Result<(), ImageError>> {
        let (places, name) = (Arc::clone(&self.places), name.tagged());
        Box::pin(aside(move || {
            let take = || places.take_away(&name).map_err(io_step("remove the image"));
            let mut taken = take()?;
            for _ in 0..PATIENCE {
                if !matches!(taken, place::Taken::InUse) {
                    break;
                }
                std::thread::sleep(MOMENT);
                taken = take()?;
            }
            match taken {
                place::Taken::Away => {
                    sweep::sweep(&places);
                    Ok(())
                }
                place::Taken::InUse => Err(ImageError::InUse {
                    image: name.to_string(),
                    why: "a box runs from it".to_owned(),
                }),
                place::Taken::NotThere => Err(Self::not_found(&name)),
            }
        }))
    }
}
