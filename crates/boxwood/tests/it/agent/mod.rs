//! The agent tools, in the daemon and through a remote daemon.

mod docs_page;
mod files;
mod remote;
mod skills;
mod states;
pub(crate) mod tools;
mod until_stdin_closes;
