//! Packages of the platform that a box gets to see as they were packed, and not otherwise.
//!
//! Comes in: a directory, a list of what must be in it, and the digest of that list. Goes out: yes, or
//! what is wrong. Never here: mounting.

use std::collections::HashSet;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use boxwood_api::{MountMode, MountSpec};
use rustix::fs::{Mode, OFlags, openat};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::langbot::Fault;
use crate::langbot::reply::utf8_json;

/// Where such packages appear in a box, each under its own digest.
pub(crate) const ROOT: &str = "/opt/langbot-artifacts";

const MAX_MANIFEST_BYTES: u64 = 4 * 1024 * 1024;
const MAX_FILES: usize = 2048;
const MAX_TOTAL_BYTES: u64 = 256 * 1024 * 1024;

/// What one of a request's extra mounts says of its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Artifact {
    /// Which of the extra mounts.
    pub(crate) mount: usize,
    /// `sha256:` and 64 hex digits.
    pub(crate) digest: Option<String>,
    pub(crate) manifest: Option<String>,
}

impl Artifact {
    /// Whether the mount is one whose place names its content.
    pub(crate) fn is_addressed(&self, mount: &MountSpec) -> bool {
        let Some(hex) = self.digest.as_deref().and_then(|it| it.strip_prefix("sha256:")) else {
            return false;
        };
        mount.mode == MountMode::Ro
            && self.manifest.is_some()
            && mount
                .mount_path
                .strip_prefix(ROOT)
                .and_then(|rest| rest.strip_prefix('/'))
                == Some(hex)
    }
}

struct File {
    path: String,
    size: u64,
    sha256: String,
    executable: bool,
}
