//! Shared by the tests: running the command, real and scripted daemons, observing the host.

pub(crate) mod command;
pub(crate) mod daemon;
pub(crate) mod host;
pub(crate) mod http;
pub(crate) mod scripted_daemon;
