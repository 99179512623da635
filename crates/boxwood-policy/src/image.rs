//! Which root a box gets for an image name.

use boxwood_api::DEFAULT_IMAGES;

use crate::{Image, PolicyRules};

/// The word for "this machine's own system directories".
pub const HOST_IMAGE: &str = "host";

/// Only the operator's `[images]` leads to a directory. A request that spells a path gets a name
/// that no engine knows, never that path.
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
