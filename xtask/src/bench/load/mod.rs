//! Latency of one box while others, or many of them, load the daemon.

mod adoption;
mod crowd;
mod neighbour;

use std::path::Path;

use super::measure::table::Row;
use super::{Effort, progress};

/// Every row's name starts like this; alone it means all of them.
pub(super) const PREFIX: &str = "load";

const OUTPUT: &str = "load-output";
const FORKS: &str = "load-forks";
const CONNECTIONS: &str = "load-connections";
const CROWD: &str = "load-crowd";
const ADOPTION: &str = "load-adoption";
pub(super) const NAMES: [&str; 5] = [OUTPUT, FORKS, CONNECTIONS, CROWD, ADOPTION];

/// The text above the table.
pub(super) const ABOUT: &str = "\
Both sides are Boxwood: the same operation with and without the load. A flood is switched on and off many times within a \
row, so that both sides see the same machine. The client that measures, the flood and the daemon share the \
machine's processors.";

pub(super) fn rows(binary: &Path, effort: Effort, wanted: impl Fn(&str) -> bool) -> Vec<Row> {
    let mut rows = Vec::new();
    for name in NAMES.into_iter().filter(|name| wanted(name)) {
        progress(name, || match name {
            OUTPUT => rows.push(neighbour::row(binary, effort, neighbour::Flood::Output)),
            FORKS => rows.push(neighbour::row(binary, effort, neighbour::Flood::Forks)),
            CONNECTIONS => rows.push(neighbour::row(
                binary,
                effort,
                neighbour::Flood::Connections,
            )),
            CROWD => rows.extend(crowd::rows(binary, effort)),
            _ => rows.push(adoption::row(binary)),
        });
    }
    rows
}
