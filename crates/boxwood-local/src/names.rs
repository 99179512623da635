//! What boxes are called on this machine.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

static NUMBER: AtomicU64 = AtomicU64::new(0);

/// A box's name, unique on this host: who made it, and the how manieth it was.
pub fn next_name() -> String {
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    format!("b{}-{number}", std::process::id())
}

/// Whether the process that made the box called `name` is dead.
pub(crate) fn is_stale(name: &str) -> bool {
    let maker = name.strip_prefix('b').and_then(|rest| rest.split_once('-'));
    let pid = maker.and_then(|(pid, _)| pid.parse::<u32>().ok());
    pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists())
}
