//! Starts and restarts of servers: permits, installs, faults and retries.

mod faults;
mod host_io;
mod installs;
mod permits;
mod retry_model;
