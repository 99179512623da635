//! Puts the backends together that run boxes on this machine.
//!
//! Comes in: the configuration. Goes out: backends. That happens before there is a runtime: a helper
//! process is forked from a program that has no other threads yet.

use boxwood_server::{Config, PoolUse};
use boxwood_session::Backends;

use crate::failure::{Failure, Outcome};

pub(crate) fn launch(config: &Config, pool: PoolUse) -> Outcome<Backends> {
    boxwood_server::launch(config, pool).map_err(|error| {
        let (code, hint) = (error.code(), error.hint());
        Failure::new(code, error).maybe_hint(hint)
    })
}
