//! The images that a prewarmed box was started from, to detect changes.

use std::os::unix::fs::MetadataExt as _;

use boxwood_api::ImageInfo;
use boxwood_backend::Backend;
use boxwood_policy::{AdmittedSpec, Image};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Images {
    /// All images that the backend listed. Any change outdates the box, because only the backend knows
    /// which image a name means.
    listed: Option<Vec<ImageInfo>>,
    /// The root directory, for images that are directories.
    root: Option<(u64, u64)>,
}

impl Images {
    pub(super) async fn current(backend: &dyn Backend, spec: &AdmittedSpec) -> Self {
        Self {
            listed: listed(backend).await,
            root: root(spec),
        }
    }

    /// Fast: reads one directory at most.
    pub(super) fn root_is_the_same(&self, spec: &AdmittedSpec) -> bool {
        self.root == root(spec)
    }

    /// A failed list counts as unchanged.
    pub(super) fn differ_from(&self, current: &Self) -> bool {
        let listed = current.listed.is_some() && self.listed != current.listed;
        listed || self.root != current.root
    }
}

async fn listed(backend: &dyn Backend) -> Option<Vec<ImageInfo>> {
    let mut images = backend.images().list().await.ok()?;
    images.sort_by(|one, other| one.name.cmp(&other.name));
    Some(images)
}

fn root(spec: &AdmittedSpec) -> Option<(u64, u64)> {
    let Image::Directory { path, .. } = spec.image() else {
        return None;
    };
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino()))
}
