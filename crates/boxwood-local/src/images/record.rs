//! The metadata file of an image.

use boxwood_api::{ImageInfo, ImageName, ImageSource};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::unpack::Sizes;

/// Unknown fields of later versions are ignored.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) name: ImageName,
    pub(super) size_bytes: u64,
    pub(super) entries: u64,
    pub(super) created: Timestamp,
}

impl Record {
    pub(super) fn new(name: &ImageName, sizes: Sizes) -> Self {
        Self {
            name: name.clone(),
            size_bytes: sizes.bytes,
            entries: sizes.entries,
            created: Timestamp::now(),
        }
    }

    pub(super) fn into_info(self, backend: &str) -> ImageInfo {
        ImageInfo {
            name: self.name.into(),
            backend: backend.to_owned(),
            source: ImageSource::Store,
            id: None,
            size_bytes: Some(self.size_bytes),
            created: Some(self.created),
        }
    }
}
