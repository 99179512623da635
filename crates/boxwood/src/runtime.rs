//! The two runtimes.

use tokio::runtime::{Builder, Runtime};

use crate::failure::{Failure, Outcome};

/// One thread is plenty for a client.
pub(crate) fn for_client() -> Outcome<Runtime> {
    built(&mut Builder::new_current_thread())
}

/// For the verbs that run boxes in this process.
#[cfg(target_os = "linux")]
pub(crate) fn for_boxes() -> Outcome<Runtime> {
    // A worker looks for news of sockets and pipes after so many steps of work, or when it has none.
    // The usual 61 are too many where each may be the copy of a pipe's whole content.
    built(Builder::new_multi_thread().event_interval(7))
}

fn built(builder: &mut Builder) -> Outcome<Runtime> {
    builder
        .enable_all()
        .build()
        .map_err(|error| Failure::local("threads could not be started", error))
}
