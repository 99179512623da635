//! The agent tools, in the daemon and through a remote daemon.

mod docs_page;
mod files;
pub(crate) mod remote;
mod remote_child;
mod skills;
mod states;
pub(crate) mod tools;
