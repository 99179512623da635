//! What is wanted of a server, and the answer to whoever wants it.

use tokio::sync::oneshot;

use super::HostingError;
use super::install::Reuse;

pub(crate) type Reply = oneshot::Sender<Result<(), HostingError>>;

/// Each is answered once it is under way, or done where it ends something.
pub(crate) enum Order {
    Start(Reply),
    Stop(Reply),
    /// The second says whether the install that is there will do.
    Restart(Reply, Reuse),
    /// Somebody wants to call it.
    Wake,
    /// It was described anew.
    Changed(Reply),
    /// Nothing of it is left afterwards, and no further order is taken.
    Remove(Reply),
}

impl Order {
    pub(crate) fn refuse(self, error: HostingError) {
        match self {
            Self::Wake => {}
            Self::Start(reply)
            | Self::Stop(reply)
            | Self::Restart(reply, _)
            | Self::Changed(reply)
            | Self::Remove(reply) => done(reply, Err(error)),
        }
    }
}

/// Whoever asked may be gone by now.
pub(crate) fn done(reply: Reply, result: Result<(), HostingError>) {
    drop(reply.send(result));
}
