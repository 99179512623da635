//! What holds for Docker and Podman alike.

mod images;
mod injection;
mod meddling;
mod pull;
