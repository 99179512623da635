//! The way out that this daemon can offer: veth as root, `pasta` otherwise.

use super::{Networks, Pasta};
use crate::settings::Settings;

pub enum WaysOut {
    Veth(Networks),
    Pasta(Pasta),
}

impl WaysOut {
    /// Clears what a dead daemon of this instance left. Failing at that is not fatal: the first box
    /// with a network will say what is wrong.
    pub(crate) fn new(instance: &str, settings: &Settings, root: bool) -> Self {
        if root {
            if let Err(error) = Networks::sweep(instance) {
                tracing::warn!(%error, "leftovers of an earlier network were not removed");
            }
            return Self::Veth(Networks::new(instance, settings.network.clone()));
        }
        let pasta = Pasta::new(&settings.run_dir.join("pasta"), settings.network.clone());
        if let Err(error) = pasta.sweep() {
            tracing::warn!(%error, "leftovers of an earlier network were not removed");
        }
        Self::Pasta(pasta)
    }

    /// Lets go of what outlives single boxes. Called when there are none left.
    pub(crate) fn close(&self) {
        if let Self::Pasta(pasta) = self {
            pasta.remove_directory();
        }
    }
}
