//! Attacks from inside a box. The name of a case says what must not work.

mod attack;
mod bombs;
mod file_routes;
mod host_files;
mod host_processes;
mod init;
mod kernel;
mod leftovers;
mod live_mounts;
mod network;
mod privilege;

use crate::Case;
pub use attack::Report;

pub(super) fn all() -> Vec<Case> {
    [
        bombs::cases(),
        file_routes::cases(),
        host_files::cases(),
        host_processes::cases(),
        init::cases(),
        kernel::cases(),
        leftovers::cases(),
        live_mounts::cases(),
        network::cases(),
        privilege::cases(),
    ]
    .concat()
}
