//! Resolves image names to root file systems.

use boxwood_api::DEFAULT_IMAGES;

use crate::{Image, PolicyRules};

/// Selects the system directories of the host.
pub const HOST_IMAGE: &str = "host";

/// Only `[images]` maps names to directories. A path in a request is treated as an image name,
/// never as a path.
pub(crate) fn resolve(text: &str, rules: &PolicyRules) -> Image {
    let name = text.trim();
    if let Some(path) = rules.images.get(name) {
        return Image::Directory {
            name: name.to_owned(),
            path: path.clone(),
        };
    }
    if name.is_empty() || name == HOST_IMAGE || DEFAULT_IMAGES.contains(&name) {
        return Image::Default;
    }
    Image::Named(name.to_owned())
}
