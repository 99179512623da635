//! The images that boxes start from.
//!
//! Comes in: a checked name, a tar archive. Goes out: a list, news of a pull, a typed refusal. Never
//! here: which image a box gets (policy), tar or engines (the backends).

use std::io;
use std::time::Duration;

use boxwood_api::{ErrorCode, ImageInfo, ImageName};
use futures_util::future::BoxFuture;
use tokio::io::AsyncRead;

use crate::Progress;

/// A tar archive as it arrives, plain or compressed with gzip.
pub type ImageArchive = Box<dyn AsyncRead + Send + Unpin>;

/// Every method is required, as with [`Backend`](crate::Backend). A backend that has no images of
/// its own answers with [`NoImages`].
pub trait Images: Send + Sync {
    fn list(&self) -> BoxFuture<'_, Result<Vec<ImageInfo>, ImageError>>;
    /// Fetches an image from its registry. Has a deadline of its own, and a failure or a dropped
    /// future leaves no half image under the name.
    fn pull<'a>(
        &'a self,
        name: &'a ImageName,
        progress: &'a Progress,
    ) -> BoxFuture<'a, Result<ImageInfo, ImageError>>;
    /// Makes an image of a root file system in an archive. What had the name before is replaced at
    /// once and completely, or not at all. Boxes that run keep what they started from.
    fn import<'a>(
        &'a self,
        name: &'a ImageName,
        archive: ImageArchive,
    ) -> BoxFuture<'a, Result<ImageInfo, ImageError>>;
    /// Refused while a box runs from it.
    fn remove<'a>(&'a self, name: &'a ImageName) -> BoxFuture<'a, Result<(), ImageError>>;
}

#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    #[error("image `{image}` was not found")]
    NotFound { image: String, hint: String },
    /// A fine name that this backend cannot use.
    #[error("image `{image}` cannot have this name: {why}")]
    Reserved { image: String, why: String },
    #[error("the archive cannot be used: {why}")]
    BadArchive { why: String },
    #[error("the image is too large: {why}")]
    TooLarge { why: String },
    #[error("image `{image}` is in use: {why}")]
    InUse { image: String, why: String },
    /// In the engine's own words.
    #[error("image `{image}` could not be pulled: {why}")]
    Pull {
        image: String,
        why: String,
        hint: String,
    },
    #[error("{why}")]
    Unavailable { why: String, hint: String },
    #[error("{what}")]
    Unsupported { what: String, hint: String },
    #[error("{what} took longer than {} seconds", after.as_secs())]
    TimedOut { what: String, after: Duration },
    #[error("the image store failed: {step}")]
    Io {
        step: String,
        #[source]
        source: io::Error,
    },
}

impl ImageError {
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::NotFound { .. } | Self::Pull { .. } => ErrorCode::ImageNotFound,
            Self::Reserved { .. }
            | Self::BadArchive { .. }
            | Self::InUse { .. }
            | Self::Unsupported { .. } => ErrorCode::ValidationError,
            Self::TooLarge { .. } => ErrorCode::PayloadTooLarge,
            Self::Unavailable { .. } => ErrorCode::BackendUnavailable,
            Self::TimedOut { .. } => ErrorCode::Timeout,
            Self::Io { .. } => ErrorCode::InternalError,
        }
    }

    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::NotFound { hint, .. }
            | Self::Pull { hint, .. }
            | Self::Unavailable { hint, .. }
            | Self::Unsupported { hint, .. } => Some(hint),
            Self::Reserved { .. } => Some("take another name"),
            Self::BadArchive { .. } => Some(
                "give a tar of a root file system, plain or with gzip: `docker export`, or `tar -C rootfs -c .`",
            ),
            Self::InUse { .. } => Some("stop the sessions that run from it, then try again"),
            Self::TimedOut { .. } => {
                Some("try again, or see whether the engine or the network is slow")
            }
            Self::TooLarge { .. } | Self::Io { .. } => None,
        }
    }
}

/// A backend without images: an empty list, and a typed refusal of everything else.
#[derive(Debug)]
pub struct NoImages {
    pub backend: &'static str,
}

impl NoImages {
    fn refuse(&self) -> ImageError {
        ImageError::Unsupported {
            what: format!("the `{}` backend keeps no images", self.backend),
            hint: "choose another backend".to_owned(),
        }
    }
}

impl Images for NoImages {
    fn list(&self) -> BoxFuture<'_, Result<Vec<ImageInfo>, ImageError>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn pull<'a>(
        &'a self,
        _name: &'a ImageName,
        _progress: &'a Progress,
    ) -> BoxFuture<'a, Result<ImageInfo, ImageError>> {
        Box::pin(async { Err(self.refuse()) })
    }

    fn import<'a>(
        &'a self,
        _name: &'a ImageName,
        _archive: ImageArchive,
    ) -> BoxFuture<'a, Result<ImageInfo, ImageError>> {
        Box::pin(async { Err(self.refuse()) })
    }

    fn remove<'a>(&'a self, _name: &'a ImageName) -> BoxFuture<'a, Result<(), ImageError>> {
        Box::pin(async { Err(self.refuse()) })
    }
}
