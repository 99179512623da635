//! Images: names, listings and pull progress.

pub(crate) mod name;
#[cfg(test)]
mod name_tests;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One image that a backend can start boxes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ImageInfo {
    pub name: String,
    pub backend: String,
    pub source: ImageSource,
    /// The engine's own identifier, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<Timestamp>,
}

/// Where an image is stored, which decides whether Boxwood may remove it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ImageSource {
    /// A directory that the operator named in the configuration.
    Configured,
    /// Unpacked below the daemon's state directory.
    Store,
    /// In the engine's own store, which other programs may use.
    Engine,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ImageList {
    pub images: Vec<ImageInfo>,
    /// Backends whose images could not be listed, and why. `images` has those of all others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unavailable: Vec<UnlistedBackend>,
}

/// A backend whose images are not in the list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UnlistedBackend {
    pub backend: String,
    pub why: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeletedImage {
    pub deleted: String,
}

/// One progress message of a pull, with the text of the engine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ImageProgress {
    pub image: String,
    pub text: String,
    /// How much is done of `total`, in bytes, where the engine counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
}

impl ImageProgress {
    pub fn new(image: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            image: image.into(),
            text: text.into(),
            current: None,
            total: None,
        }
    }
}
