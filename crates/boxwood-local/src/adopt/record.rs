//! The record of a box that init keeps for the next daemon.

use boxwood_api::IsolationLabel;
use serde::{Deserialize, Serialize};

use crate::cgroup::GroupRecord;
use crate::ids::IdsRecord;
use crate::mounts::live::NamespaceIndexes;
use crate::network::outbound::OutboundRecord;

/// The part of the record that belongs to this crate. It is read back from inside a box and is therefore
/// untrusted: values are verified with the kernel where possible, and it contains no paths.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct BoxRecord {
    pub(crate) backend: String,
    pub(crate) name: String,
    pub(crate) label: IsolationLabel,
    /// Paths that Landlock lets commands write to; empty without Landlock.
    #[serde(rename = "fence")]
    pub(crate) writable_paths: Vec<String>,
    pub(crate) ids: IdsRecord,
    pub(crate) group: Option<GroupRecord>,
    #[serde(rename = "way_out")]
    pub(crate) outbound: Option<OutboundRecord>,
    /// The backend's own state, see [`crate::BackendState`].
    #[serde(default, rename = "shell")]
    pub(crate) backend_state: serde_json::Value,
    /// Indexes into the descriptors that accompany the record.
    #[serde(rename = "doors")]
    pub(crate) namespaces: Option<NamespaceIndexes>,
    pub(crate) image: Option<usize>,
}
