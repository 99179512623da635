//! The 0.7 wire format: workspaces, generations of their placement on a LangBot server, admission grants.

mod admission;
mod capacity;
mod control;
mod files;
mod generations;
mod handler;
mod instance;
mod limits;
mod placement;
mod relay;
mod state;
mod storage_report;

use crate::{ActionError, LangBot};

pub(crate) use admission::start_cleanup;
pub use generations::CurrentPlacement;
pub(crate) use handler::run;
pub use instance::InstanceError;
pub(crate) use instance::{Enrollment, Instance, InstanceGate};
pub(crate) use placement::{Placement, Workspace};
pub use relay::{RelayAccess, RelayRefusal};
pub(crate) use state::State;

/// Creates the default workspace if the environment names a LangBot instance, which expects it to exist.
pub(crate) async fn apply_environment(langbot: &LangBot) -> Result<(), ActionError> {
    let state = &langbot.v0_7;
    if state.gate.configured().is_none() {
        return Ok(());
    }
    control::make_workspace(langbot, state.settings()).await
}
