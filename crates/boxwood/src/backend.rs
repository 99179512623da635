//! Creates the backends that run boxes on this machine.
//!
//! This happens before the runtime starts: a helper process is forked while the process has a single thread.

use boxwood_server::{Config, PoolUse};
use boxwood_session::Backends;

use crate::failure::{Failure, Outcome};

pub(crate) fn launch(config: &Config, pool: PoolUse) -> Outcome<Backends> {
    boxwood_server::launch(config, pool).map_err(|error| {
        let (code, hint) = (error.code(), error.hint());
        Failure::new(code, error).maybe_hint(hint)
    })
}
