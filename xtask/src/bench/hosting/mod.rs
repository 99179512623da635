//! MCP servers behind the gateway, compared with other gateways.

mod calls;
mod client;
mod crowd;
mod sides;

use std::path::Path;

use super::measure::table::Row;
use super::{Effort, progress};

/// Every row's name starts like this; alone it means all of them.
pub(super) const PREFIX: &str = "hosting";

const CALL: &str = "hosting-call";
const MANY: &str = "hosting-many";
pub(super) const NAMES: [&str; 2] = [CALL, MANY];

/// The text above the table.
pub(super) const ABOUT: &str = "\
One small MCP server (Python, standard input and output), asked directly through its pipes, and through gateways \
over HTTP: ours, where it runs in a box, and two others, where it runs on the host. All run side by side and take \
turns, each over one connection that stays open, with a legacy protocol version, which all of them support. What a gateway adds is \
its time less the median of the direct call.";

pub(super) fn rows(binary: &Path, effort: Effort, wanted: impl Fn(&str) -> bool) -> Vec<Row> {
    let mut rows = Vec::new();
    for name in NAMES.into_iter().filter(|name| wanted(name)) {
        progress(name, || match name {
            CALL => rows.extend(calls::rows(binary, effort)),
            _ => rows.extend(crowd::rows(binary)),
        });
    }
    rows
}
