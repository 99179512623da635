//! Behaviour that is the same for the boxes of all backends.

mod adoption;
mod environment;
mod exec;
mod file_tools;
mod files;
mod freeze;
mod image;
mod kill;
mod label;
mod life;
mod limits;
mod live_mounts;
mod mounts;
mod neighbours;
mod network;
mod quota;
mod root;
mod streams;
mod terminal;

use crate::Case;

pub(super) fn all() -> Vec<Case> {
    [
        environment::cases(),
        exec::cases(),
        file_tools::cases(),
        files::cases(),
        freeze::cases(),
        image::cases(),
        kill::cases(),
        label::cases(),
        life::cases(),
        limits::cases(),
        live_mounts::cases(),
        mounts::cases(),
        neighbours::cases(),
        network::cases(),
        quota::cases(),
        root::cases(),
        streams::cases(),
        terminal::cases(),
    ]
    .concat()
}

pub(super) fn adoption() -> Vec<crate::harness::handover::Scenario> {
    adoption::scenarios()
}
