//! Values on the command line (durations, sizes, mounts, paths), and flags that several verbs share.

mod client_kind;
mod copy_path;
mod duration;
mod mount;
mod size;
mod spec;

pub(crate) use client_kind::ClientKind;
pub(crate) use copy_path::CopyPath;
pub(crate) use duration::{duration, duration_text};
pub(crate) use mount::{Mount, Workspace};
pub(crate) use size::{Mebibytes, size_text};
pub(crate) use spec::{
    Assignment, BoxFlags, CommandFlags, assignments, command_line, cpus, whole_seconds,
};
