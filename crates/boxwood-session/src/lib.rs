//! Sessions, their boxes, and the programs in them.
//!
//! Takes what policy has admitted and creates sessions, captured and streamed execs, managed processes
//! and events. Does not know isolation technologies, policy, HTTP or configuration files.
#![forbid(unsafe_code)]

mod admission;
mod backends;
mod error;
mod events;
mod exec;
mod managed;
mod program;
mod quota;
mod recovery;
mod session;
mod sessions;
mod settings;
mod warm_pool;

pub use admission::{Budget, Busy, Held, Load, LoadLimits};
pub use backends::{Backends, Candidate, Choice};
pub(crate) use error::Result;
pub use error::SessionError;
pub use events::EventStream;
pub use exec::streamed::{ExecEvent, Resume, StreamedExec};
pub use managed::{Attachable, Attachment, Replace};
pub use program::{ReplayLimits, Since};
pub use quota::Writer;
pub use recovery::{Lost, Recovery};
pub use session::access::Access;
pub use sessions::{Sessions, Workload};
pub use settings::{Settings, ShutdownBoxes};
pub use warm_pool::WarmPoolSpec;

/// Types of `boxwood-backend` that callers of this crate need.
pub use boxwood_backend::{FileAnswer, FileCall, Input, OpenFor, Stdio, TerminalSize};
