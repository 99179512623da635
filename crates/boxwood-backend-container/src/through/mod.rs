//! Boxes that no descriptor reaches: on another machine, in a virtual one, behind another kernel.
//!
//! Comes in: an admitted spec. Goes out: a container whose init speaks over the one connection that the
//! engine itself attaches. The engine furnishes it, as far as it can; what it cannot is refused. Never
//! here: an engine's `exec`. A command costs a message here too.

mod furniture;
mod label;
mod program;
mod relay;
mod start;
mod streams;
mod way;

pub(crate) use relay::Relay;
pub(crate) use start::start;
pub(crate) use way::{Place, Way, Ways, has_terminals, is_elsewhere, kernel_of};
