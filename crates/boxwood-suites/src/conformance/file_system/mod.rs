//! Files of a box: its root, its mounts, and the calls that read and write them.

mod file_tools;
mod files;
mod image;
mod live_mounts;
mod mounts;
mod quota;
mod root;

use crate::Case;

pub(super) fn cases() -> Vec<Case> {
    [
        file_tools::cases(),
        files::cases(),
        image::cases(),
        live_mounts::cases(),
        mounts::cases(),
        quota::cases(),
        root::cases(),
    ]
    .concat()
}
