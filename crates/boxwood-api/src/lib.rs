//! The words Boxwood speaks.
//!
//! Comes in: nothing. Goes out: ids, requests, answers and error codes, each with its JSON shape.
//! Never here: judgement, I/O, async. A type in this crate appears on the wire.
#![forbid(unsafe_code)]

mod coerce;
mod error;
mod event;
mod exec;
mod field;
mod file;
mod id;
mod isolation;
mod process;
mod profile;
mod reason;
mod session;
mod spec;
mod spec_rules;
mod status;

pub use error::{ErrorBody, ErrorCode, ErrorDetail};
pub use event::{Event, EventKind};
pub use exec::{ExecResult, ExecStatus, StreamCapture};
pub use field::FieldError;
pub use file::{FileEntry, FileKind};
pub use id::{IdError, ProcessId, SessionId};
pub use isolation::{IsolationLabel, Mechanism, MissingMechanism, NetworkIsolation};
pub use process::{ProcessInfo, ProcessSpec, ProcessStatus};
pub use profile::{LockableField, ProfileInfo};
pub use reason::Reason;
pub use session::{SessionDetail, SessionInfo};
pub use spec::{DEFAULT_IMAGES, DEFAULT_MOUNT_PATH, MountMode, MountSpec, Network, SpecRequest};
pub use spec_rules::{MAX_COMMAND_BYTES, MAX_MOUNTS};
pub use status::{BackendInfo, Status};
