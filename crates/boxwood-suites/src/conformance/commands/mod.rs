//! Commands in a box: their environment, input, output and end.

mod environment;
mod exec;
mod kill;
mod streams;
mod terminal;

use crate::Case;

pub(super) fn cases() -> Vec<Case> {
    [
        environment::cases(),
        exec::cases(),
        kill::cases(),
        streams::cases(),
        terminal::cases(),
    ]
    .concat()
}
