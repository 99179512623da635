//! Tests for both Docker and Podman.

mod adopted;
mod hosted;
mod images;
mod injection;
mod meddling;
mod pull;
