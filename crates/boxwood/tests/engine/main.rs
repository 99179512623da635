//! The real daemon with real engines that are killed, paused or shared with other users.
//!
//! Each module tests one engine, or Docker and Podman alike. Environment variables name the engines;
//! `cargo xtask engines up -- COMMAND` sets them.
#![forbid(unsafe_code)]

mod boxes;
mod containers;
mod daemon;
mod docker;
mod dockerd;
mod engine;
mod hosting;
mod nsjail;
mod podman;
mod request;
mod traces;
mod waiting;
