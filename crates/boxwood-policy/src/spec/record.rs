//! Serialises admitted specs, so that the next daemon can adopt running boxes.
//!
//! Descriptors cannot be serialised. The caller reopens the paths and checks by file identity that
//! they are unchanged. Restored specs are not checked again: policy ran when the box was created.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::spec::{BoxMount, Settings};
use crate::{AdmittedMount, AdmittedSpec, OpenedPath};

/// Increased when a field changes its meaning. New fields have a default instead.
const VERSION: u32 = 1;

/// Identifies a file (device and inode).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileIdentity {
    pub device_major: u32,
    pub device_minor: u32,
    pub inode: u64,
}

/// The serialised form of an [`AdmittedSpec`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SpecRecord {
    version: u32,
    #[serde(flatten)]
    settings: Settings,
    workspace: Option<MountRecord>,
    extra_mounts: Vec<MountRecord>,
    /// Always `false`; earlier versions require the field.
    host_network_allowed: bool,
}

/// A mount, with a path instead of its descriptor.
pub type MountRecord = BoxMount<PathRecord>;

/// A host file or directory to reopen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathRecord {
    pub given: String,
    #[serde(with = "path_text")]
    pub real_path: PathBuf,
    pub is_dir: bool,
    /// `None` if it could not be determined.
    pub identity: Option<FileIdentity>,
}

#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error("the record has version {found}, and this daemon reads {VERSION}")]
    Version { found: u32 },
    /// Only for missing descriptors. Missing paths are not an error.
    #[error("failed to reopen a path of the record: no file descriptor is available")]
    Descriptor { source: io::Error },
}

/// Identifies the file behind a descriptor.
pub type Identify<'a> = &'a dyn Fn(&OpenedPath) -> Option<FileIdentity>;

/// Reopens a path. If it is another file by now, returns a descriptor that matches no file, so that
/// it cannot be mistaken for the admitted one.
pub type Reopen<'a> = &'a dyn Fn(&PathRecord) -> io::Result<Arc<OwnedFd>>;

impl AdmittedSpec {
    pub fn record(&self, identify: Identify<'_>) -> SpecRecord {
        let mounts = self.extra_mounts.iter();
        SpecRecord {
            version: VERSION,
            settings: self.settings.clone(),
            workspace: self.workspace.as_ref().map(|mount| mount.record(identify)),
            extra_mounts: mounts.map(|mount| mount.record(identify)).collect(),
            host_network_allowed: false,
        }
    }

    /// Restores the spec of a running box from its record.
    pub fn restored(record: SpecRecord, reopen: Reopen<'_>) -> Result<Self, RecordError> {
        if record.version != VERSION {
            return Err(RecordError::Version {
                found: record.version,
            });
        }
        let restored = |mount| AdmittedMount::restored(mount, reopen);
        let mounts = record.extra_mounts.into_iter();
        Ok(Self {
            settings: record.settings,
            workspace: record.workspace.map(restored).transpose()?,
            extra_mounts: mounts.map(restored).collect::<Result<_, _>>()?,
        })
    }
}

impl AdmittedMount {
    pub fn record(&self, identify: Identify<'_>) -> MountRecord {
        self.clone().map_source(|source| PathRecord {
            identity: identify(&source),
            given: source.given,
            real_path: source.real_path,
            is_dir: source.is_dir,
        })
    }

    /// Restores a mount of a running box.
    pub fn restored(record: MountRecord, reopen: Reopen<'_>) -> Result<Self, RecordError> {
        let handle = reopen(&record.source).map_err(|source| RecordError::Descriptor { source })?;
        Ok(record.map_source(|path| OpenedPath {
            handle,
            given: path.given,
            real_path: path.real_path,
            is_dir: path.is_dir,
        }))
    }
}

/// A path as text if it is valid UTF-8, else as bytes.
pub(crate) mod path_text {
    use std::ffi::OsString;
    use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

    use serde::{Deserializer, Serializer};

    use super::{Deserialize, Path, PathBuf, Serialize};

    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum PathText {
        Text(String),
        Bytes(Vec<u8>),
    }

    pub(crate) fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
        let encoded = path.to_str().map_or_else(
            || PathText::Bytes(path.as_os_str().as_bytes().to_vec()),
            |text| PathText::Text(text.to_owned()),
        );
        encoded.serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<PathBuf, D::Error> {
        Ok(match PathText::deserialize(deserializer)? {
            PathText::Text(text) => PathBuf::from(text),
            PathText::Bytes(bytes) => PathBuf::from(OsString::from_vec(bytes)),
        })
    }
}

/// A number as its bits, because the values are compared for equality.
pub(crate) mod bits {
    use serde::{Deserialize as _, Deserializer, Serializer};

    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "the signature that serde calls"
    )]
    pub(crate) fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(value.to_bits())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        u64::deserialize(deserializer).map(f64::from_bits)
    }
}
