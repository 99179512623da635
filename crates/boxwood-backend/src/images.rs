//! The image store of a backend: list, pull, import and remove.
//!
//! Which image a box gets is decided by policy.

use std::io;
use std::time::Duration;

use boxwood_api::{ErrorCode, ImageInfo, ImageName};
use futures_util::future::BoxFuture;
use tokio::io::AsyncRead;

use crate::Progress;

/// A tar archive, plain or compressed with gzip.
pub type ImageArchive = Box<dyn AsyncRead + Send + Unpin>;

/// Every method is required, as in [`Backend`](crate::Backend). A backend without images returns
/// [`NoImages`].
pub trait Images: Send + Sync {
    fn list(&self) -> BoxFuture<'_, Result<Vec<ImageInfo>, ImageError>>;
    /// Pulls an image from its registry. Has its own timeout. An error or a dropped future leaves no partial
    /// image.
    fn pull<'a>(
        &'a self,
        name: &'a ImageName,
        progress: &'a Progress,
    ) -> BoxFuture<'a, Result<ImageInfo, ImageError>>;
    /// Creates an image from an archive of a root file system. An existing image of the same name is replaced
    /// atomically. Running boxes keep their image.
    fn import<'a>(
        &'a self,
        name: &'a ImageName,
        archive: ImageArchive,
    ) -> BoxFuture<'a, Result<ImageInfo, ImageError>>;
    /// Fails while a box runs from the image.
    fn remove<'a>(&'a self, name: &'a ImageName) -> BoxFuture<'a, Result<(), ImageError>>;
}

#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    #[error("image `{image}` was not found")]
    NotFound { image: String, hint: String },
    /// A valid name that this backend cannot use.
    #[error("image `{image}` cannot have this name: {why}")]
    Reserved { image: String, why: String },
    #[error("the archive cannot be used: {why}")]
    BadArchive { why: String },
    #[error("the image is too large: {why}")]
    TooLarge { why: String },
    #[error("image `{image}` is in use: {why}")]
    InUse { image: String, why: String },
    /// `why` is the engine's message.
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
            Self::Reserved { .. } => Some("choose another name"),
            Self::BadArchive { .. } => Some(
                "pass a tar archive of a root file system, plain or gzip-compressed: `docker export`, or `tar -C rootfs -c .`",
            ),
            Self::InUse { .. } => Some("stop the sessions that run from it, then try again"),
            Self::TimedOut { .. } => {
                Some("try again, or check whether the engine or the network is slow")
            }
            Self::TooLarge { .. } | Self::Io { .. } => None,
        }
    }
}

/// For backends without images: an empty list, and an error for everything else.
#[derive(Debug)]
pub struct NoImages {
    pub backend: &'static str,
}

impl NoImages {
    fn unsupported(&self) -> ImageError {
        ImageError::Unsupported {
            what: format!("the `{}` backend does not store images", self.backend),
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
        Box::pin(async { Err(self.unsupported()) })
    }

    fn import<'a>(
        &'a self,
        _name: &'a ImageName,
        _archive: ImageArchive,
    ) -> BoxFuture<'a, Result<ImageInfo, ImageError>> {
        Box::pin(async { Err(self.unsupported()) })
    }

    fn remove<'a>(&'a self, _name: &'a ImageName) -> BoxFuture<'a, Result<(), ImageError>> {
        Box::pin(async { Err(self.unsupported()) })
    }
}
