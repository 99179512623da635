//! What holds for Docker and Podman alike.

mod adopted;
mod hosted;
mod images;
mod injection;
mod meddling;
mod pull;
