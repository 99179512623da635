//! Reads what the clients send the way their own models do.
//!
//! Comes in: the JSON data of a request. Goes out: our own request types with every default of the
//! clients' models filled in, or the text that pydantic 2.14 would answer with. Never here: what a
//! profile or the operator allows, the file system, clocks.
//!
//! What pydantic accepts and we cannot run (a NUL in a command, an infinite number of processors) is
//! refused in the same shape, with the words of `boxwood-api`.

mod admission;
mod box_spec;
mod coerce;
mod context;
mod errors;
mod input;
mod instant;
mod integer_text;
mod model;
mod mount;
mod own_rules;
mod path;
mod process;
mod repr;

#[cfg(test)]
mod golden;
#[cfg(test)]
mod mutated;
#[cfg(test)]
mod wire_order;

pub(in crate::langbot) use admission::{admission_grant, admission_revocation};
pub(in crate::langbot) use box_spec::{GivenSpec, box_spec};
pub(in crate::langbot) use context::action_context;
pub(in crate::langbot) use process::process_spec;
