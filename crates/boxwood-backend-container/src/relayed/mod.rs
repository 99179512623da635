//! Boxes to which descriptors cannot be passed: on another machine, in a virtual machine, or on another
//! kernel.
//!
//! Init communicates over the connection that the engine attaches to the container. The engine creates the
//! mounts; what it does not support is refused. Commands do not use the engine's `exec`.

mod access;
mod engine_mounts;
mod isolation_label;
mod relay;
mod start;
mod streams;

pub(crate) use access::{Access, AccessProbe, Location, has_terminals, is_remote, kernel_of};
pub(crate) use start::start;
