//! What init keeps for the next daemon about a box.

use boxwood_api::IsolationLabel;
use serde::{Deserialize, Serialize};

use crate::cgroup::GroupRecord;
use crate::live_mount::DoorPlaces;
use crate::mapping::IdsRecord;
use crate::way_out::WayOutRecord;

/// Our layer of a box's record. It comes back from inside a box, so whatever of it can be asked of the
/// kernel is asked, and no path is taken from it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct BoxRecord {
    pub(crate) backend: String,
    pub(crate) name: String,
    pub(crate) label: IsolationLabel,
    /// Where Landlock lets commands write; empty without it.
    pub(crate) fence: Vec<String>,
    pub(crate) ids: IdsRecord,
    pub(crate) group: Option<GroupRecord>,
    pub(crate) way_out: Option<WayOutRecord>,
    /// What the backend needs to make its part of the box again.
    #[serde(default)]
    pub(crate) shell: serde_json::Value,
    /// Places in the list of descriptors that came with the record.
    pub(crate) doors: Option<DoorPlaces>,
    pub(crate) image: Option<usize>,
}
