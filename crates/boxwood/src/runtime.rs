//! The runtimes, and the backends that run boxes in this process.

use boxwood_server::{Config, PoolUse};
use boxwood_session::Backends;
use tokio::runtime::{Builder, Runtime};

use crate::failure::{Failure, Outcome};

/// A client needs a single thread.
pub(crate) fn for_client() -> Outcome<Runtime> {
    built(&mut Builder::new_current_thread())
}

/// For the verbs that run boxes in this process. The backends are created before the runtime starts: a helper process is
/// forked while the process has a single thread.
pub(crate) fn for_boxes(config: &Config, pool: PoolUse) -> Outcome<(Backends, Runtime)> {
    let backends = boxwood_server::launch(config, pool).map_err(|error| {
        let (code, hint) = (error.code(), error.hint());
        Failure::new(code, error).maybe_hint(hint)
    })?;
    // A worker polls sockets and pipes after this many tasks, or when it has none. The default of 61 is too high
    // if each task may copy the whole content of a pipe.
    let runtime = built(Builder::new_multi_thread().event_interval(7))?;
    Ok((backends, runtime))
}

fn built(builder: &mut Builder) -> Outcome<Runtime> {
    let built = builder.enable_all().build();
    built.map_err(|error| Failure::local("cannot start the threads of the runtime", error))
}
