//! A short, stable name for "this daemon", taken from its state directory.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Twelve hex digits. The same directory gives the same name after a restart, so that the next
/// daemon finds what a killed one left.
pub(crate) fn name(state_dir: &Path) -> String {
    let path = std::fs::canonicalize(state_dir).unwrap_or_else(|_| state_dir.to_owned());
    // FNV-1a: stable across builds, which the standard library's hasher does not promise.
    let hash = path.as_os_str().as_bytes().iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{:012x}", hash & 0xffff_ffff_ffff)
}
