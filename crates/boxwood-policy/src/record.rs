//! Serialises admitted specs, so that the next daemon can adopt running boxes.
//!
//! Descriptors cannot be serialised. The caller reopens the paths and checks by file identity that
//! they are unchanged. Restored specs are not checked again: policy ran when the box was created.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use boxwood_api::{Mechanism, MountMode, Network, SessionId};
use serde::{Deserialize, Serialize};

use crate::spec::Owner;
use crate::{AdmittedMount, AdmittedSpec, BoxUser, Image, Joining, Limits, OpenedPath, SpecField};

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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpecRecord {
    version: u32,
    session: SessionId,
    profile: String,
    image: ImageRecord,
    image_text: String,
    network: Network,
    limits: LimitsRecord,
    read_only_root: bool,
    workspace: Option<MountRecord>,
    host_path: Option<String>,
    host_path_mode: MountMode,
    mount_path: String,
    extra_mounts: Vec<MountRecord>,
    persistent: bool,
    user: BoxUser,
    require: Vec<Mechanism>,
    /// Always `false`; earlier versions require the field.
    host_network_allowed: bool,
    backend: Option<String>,
    #[serde(default)]
    owner: Owner,
    asked: BTreeSet<SpecField>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ImageRecord {
    Default,
    Directory {
        name: String,
        #[serde(with = "path_text")]
        path: PathBuf,
    },
    Named(String),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct LimitsRecord {
    /// As bits, because the values are compared for equality.
    cpus_bits: u64,
    memory_mb: u64,
    pids: u64,
    tmp_mb: u64,
    workspace_quota_mb: u64,
}

/// A mount, with a path instead of its descriptor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountRecord {
    source: PathRecord,
    mount_path: String,
    mode: MountMode,
    joining: Joining,
    below_workspace: Option<String>,
}

impl MountRecord {
    pub fn source(&self) -> &PathRecord {
        &self.source
    }
}

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
    #[error("there is no descriptor left for a path of the record")]
    Descriptor { source: io::Error },
}

impl SpecRecord {
    /// The same box with its current mounts.
    #[must_use]
    pub fn with_mounts(&self, extra_mounts: Vec<MountRecord>) -> Self {
        Self {
            extra_mounts,
            ..self.clone()
        }
    }

    /// The same box with the backend that was chosen for it.
    #[must_use]
    pub fn on_backend(&self, name: &str) -> Self {
        Self {
            backend: Some(name.to_owned()),
            ..self.clone()
        }
    }
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
            session: self.session.clone(),
            profile: self.profile.clone(),
            image: match &self.image {
                Image::Default => ImageRecord::Default,
                Image::Directory { name, path } => ImageRecord::Directory {
                    name: name.clone(),
                    path: path.clone(),
                },
                Image::Named(name) => ImageRecord::Named(name.clone()),
            },
            image_text: self.image_text.clone(),
            network: self.network,
            limits: LimitsRecord {
                cpus_bits: self.limits.cpus.to_bits(),
                memory_mb: self.limits.memory_mb,
                pids: self.limits.pids,
                tmp_mb: self.limits.tmp_mb,
                workspace_quota_mb: self.limits.workspace_quota_mb,
            },
            read_only_root: self.read_only_root,
            workspace: self.workspace.as_ref().map(|mount| mount.record(identify)),
            host_path: self.host_path.clone(),
            host_path_mode: self.host_path_mode,
            mount_path: self.mount_path.clone(),
            extra_mounts: mounts.map(|mount| mount.record(identify)).collect(),
            persistent: self.persistent,
            user: self.user,
            require: self.require.clone(),
            host_network_allowed: false,
            backend: self.backend.clone(),
            owner: self.owner,
            asked: self.asked.clone(),
        }
    }

    /// Restores the spec of a running box from its record.
    pub fn restored(record: SpecRecord, reopen: Reopen<'_>) -> Result<Self, RecordError> {
        if record.version != VERSION {
            return Err(RecordError::Version {
                found: record.version,
            });
        }
        let mounts = record.extra_mounts.into_iter();
        let workspace = record.workspace;
        Ok(Self {
            session: record.session,
            profile: record.profile,
            image: match record.image {
                ImageRecord::Default => Image::Default,
                ImageRecord::Directory { name, path } => Image::Directory { name, path },
                ImageRecord::Named(name) => Image::Named(name),
            },
            image_text: record.image_text,
            network: record.network,
            limits: Limits {
                cpus: f64::from_bits(record.limits.cpus_bits),
                memory_mb: record.limits.memory_mb,
                pids: record.limits.pids,
                tmp_mb: record.limits.tmp_mb,
                workspace_quota_mb: record.limits.workspace_quota_mb,
            },
            read_only_root: record.read_only_root,
            workspace: workspace
                .map(|mount| AdmittedMount::restored(mount, reopen))
                .transpose()?,
            host_path: record.host_path,
            host_path_mode: record.host_path_mode,
            mount_path: record.mount_path,
            extra_mounts: mounts
                .map(|mount| AdmittedMount::restored(mount, reopen))
                .collect::<Result<_, _>>()?,
            persistent: record.persistent,
            user: record.user,
            require: record.require,
            backend: record.backend,
            owner: record.owner,
            asked: record.asked,
        })
    }
}

impl AdmittedMount {
    pub fn record(&self, identify: Identify<'_>) -> MountRecord {
        MountRecord {
            source: PathRecord {
                given: self.source.given.clone(),
                real_path: self.source.real_path.clone(),
                is_dir: self.source.is_dir,
                identity: identify(&self.source),
            },
            mount_path: self.mount_path.clone(),
            mode: self.mode,
            joining: self.joining,
            below_workspace: self.below_workspace.clone(),
        }
    }

    /// Restores a mount of a running box.
    pub fn restored(record: MountRecord, reopen: Reopen<'_>) -> Result<Self, RecordError> {
        let handle = reopen(&record.source).map_err(|source| RecordError::Descriptor { source })?;
        Ok(Self {
            source: OpenedPath {
                handle,
                given: record.source.given,
                real_path: record.source.real_path,
                is_dir: record.source.is_dir,
            },
            mount_path: record.mount_path,
            mode: record.mode,
            joining: record.joining,
            below_workspace: record.below_workspace,
        })
    }
}

/// A path as text if it is valid UTF-8, else as bytes.
mod path_text {
    use std::ffi::OsString;
    use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

    use serde::{Deserializer, Serializer};

    use super::{Deserialize, Path, PathBuf, Serialize};

    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum Spelled {
        Text(String),
        Bytes(Vec<u8>),
    }

    pub(super) fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
        let spelled = path.to_str().map_or_else(
            || Spelled::Bytes(path.as_os_str().as_bytes().to_vec()),
            |text| Spelled::Text(text.to_owned()),
        );
        spelled.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<PathBuf, D::Error> {
        Ok(match Spelled::deserialize(deserializer)? {
            Spelled::Text(text) => PathBuf::from(text),
            Spelled::Bytes(bytes) => PathBuf::from(OsString::from_vec(bytes)),
        })
    }
}
