//! The daemon as a process: socket activation, shutdown, restart, handover, resource use.

mod budget;
mod client_reconnect;
mod descriptors;
mod killed_daemon;
mod prewarm_and_freeze;
mod shutdown_modes;
mod socket_activation;
mod takeover;
