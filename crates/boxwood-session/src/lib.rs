//! Which sessions exist, and what each may do next.
//!
//! Comes in: what policy has admitted. Goes out: sessions, command results, live streams, managed
//! processes, events. Never here: isolation technologies by name, judgement, HTTP, configuration.
#![forbid(unsafe_code)]

mod activity;
mod admission;
mod adopted;
mod adoption;
mod backends;
mod capture;
mod captured;
mod closing;
mod compat;
mod drain;
mod error;
mod events;
mod exec;
mod execs;
mod facts;
mod file_tools;
mod files;
mod following;
mod freeze;
mod input;
mod joining;
mod journal;
mod leash;
mod live;
mod managed;
mod mounts;
mod notes;
mod pace;
mod parting;
mod processes;
mod quota;
mod reach;
mod reaper;
mod reason;
mod record;
mod registry;
mod replay;
mod session;
mod sessions;
mod settings;
mod slot;
mod spawning;
mod starting;
mod warm;

pub use admission::{Budget, Busy, Held, Load, LoadLimits};
pub use adoption::{Lost, Recovery};
pub use backends::{Backends, Candidate, Choice};
pub use error::SessionError;
pub use events::Watching;
pub use live::{Acker, LiveControl, LiveEvent, LiveExec, LiveInput, Resume};
pub use managed::{Attachable, Attachment, LogChunk, LogStream, ProcessLogs, Replace};
pub use quota::Writer;
pub use reach::Reach;
pub use replay::{ReplayLimits, Since};
pub use sessions::{Sessions, Workload};
pub use settings::{Settings, ShutdownBoxes};
pub use warm::WarmWish;

/// What callers of this crate need from the layer below it.
pub use boxwood_backend::{FileAnswer, FileCall, Input, OpenFor, Stdio, TerminalSize};
