//! Identifies the current boot of the machine.

use std::sync::LazyLock;

static CURRENT: LazyLock<String> = LazyLock::new(|| {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
});

/// Empty if unknown. Then no box counts as one of an earlier boot.
pub fn current_boot() -> &'static str {
    &CURRENT
}
