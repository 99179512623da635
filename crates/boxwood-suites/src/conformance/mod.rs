//! Behaviour that is the same for the boxes of all backends.

mod adoption;
mod commands;
mod file_system;
mod freeze;
mod label;
mod life;
mod limits;
mod neighbours;
mod network;

use crate::Case;

pub(super) fn all() -> Vec<Case> {
    [
        commands::cases(),
        file_system::cases(),
        freeze::cases(),
        label::cases(),
        life::cases(),
        limits::cases(),
        neighbours::cases(),
        network::cases(),
    ]
    .concat()
}

pub(super) fn adoption() -> Vec<crate::harness::handover::Scenario> {
    adoption::scenarios()
}
