//! The way out that this daemon can offer: veth as root, `pasta` otherwise.

use std::fs;
use std::path::Path;

use super::{Networks, Pasta};
use crate::instance;
use crate::settings::Settings;

pub enum WaysOut {
    Veth(Networks),
    Pasta(Pasta),
}

impl WaysOut {
    /// Touches nothing of an earlier daemon of this instance: its boxes may be alive.
    pub(crate) fn new(instance: &str, settings: &Settings, root: bool) -> Self {
        if root {
            return Self::Veth(Networks::new(instance, settings.network.clone()));
        }
        let parent = settings.run_dir.join("pasta");
        sweep_single_commands(&parent);
        Self::Pasta(Pasta::new(&parent.join(instance), settings.network.clone()))
    }

    /// Removes what an earlier daemon of this instance left and nobody claimed. Failing at that is not
    /// fatal: the first box with a network will say what is wrong.
    pub(crate) fn settle(&self, is_wanted: impl Fn(&str) -> bool) {
        let settled = match self {
            Self::Veth(networks) => networks.settle().map_err(|error| error.to_string()),
            Self::Pasta(pasta) => pasta.settle(is_wanted).map_err(|error| error.to_string()),
        };
        if let Err(error) = settled {
            tracing::warn!(error, "leftovers of an earlier network were not removed");
        }
    }

    /// Lets go of what outlives single boxes. Called when there are none left.
    pub(crate) fn close(&self) {
        if let Self::Pasta(pasta) = self {
            pasta.remove_directory();
        }
    }
}

/// Boxes of a single command end with it, and nobody takes them over.
fn sweep_single_commands(parent: &Path) {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    for entry in entries {
        if entry.file_name().to_str().is_some_and(instance::is_stale) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
