//! The real daemon on real engines: some of them die, some fall silent, some have other users.
//!
//! Each module is about one engine, or about both that make containers; variables say where it is.
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
