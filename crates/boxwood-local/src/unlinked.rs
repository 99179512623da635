//! What a box holds in files that nobody can find any more.
//!
//! Comes in: the number of a box's first process. Goes out: the bytes of such files on one file system.
//! Never here: names. `/proc` leads to the open file itself, whatever was done to its name.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;

/// Descriptors and mappings that one look takes in. A box with more counts as holding everything.
const MOST: usize = 200_000;

/// Each file once, however many programs have it open.
pub(crate) fn bytes(init: i32, device: u64) -> u64 {
    let mut seen = HashSet::new();
    let mut bytes = 0;
    let mut looked_at = 0;
    for pid in family(init) {
        for kind in ["fd", "map_files"] {
            // A program that has just ended holds nothing; mappings are root's to look at.
            let Ok(entries) = fs::read_dir(format!("/proc/{pid}/{kind}")) else {
                continue;
            };
            for entry in entries.flatten() {
                looked_at += 1;
                if looked_at > MOST {
                    return u64::MAX;
                }
                let Ok(open) = fs::metadata(entry.path()) else {
                    continue;
                };
                let unlinked = open.is_file() && open.nlink() == 0 && open.dev() == device;
                if unlinked && seen.insert(open.ino()) {
                    bytes += open.blocks() * 512;
                }
            }
        }
    }
    bytes
}

/// The process and all its descendants: in a box, everybody's forefather is its first process.
fn family(first: i32) -> Vec<i32> {
    let mut found = vec![first];
    let mut at = 0;
    while at < found.len() {
        let threads = fs::read_dir(format!("/proc/{}/task", found[at]));
        at += 1;
        for thread in threads.into_iter().flatten().flatten() {
            let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            let children = children.split_whitespace();
            found.extend(children.filter_map(|pid| pid.parse::<i32>().ok()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_file_without_a_name_is_found_once() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("f");
        let mut file = fs::File::create(&path).expect("a file");
        file.write_all(&vec![1; 3 << 20]).expect("written");
        file.sync_all().expect("on its way");
        let device = file.metadata().expect("facts").dev();
        let ourselves = i32::try_from(std::process::id()).expect("a pid");
        let before = bytes(ourselves, device);
        fs::remove_file(&path).expect("removed");
        let again = file.try_clone().expect("a duplicate");
        let found = bytes(ourselves, device).saturating_sub(before);
        assert!(found >= 3 << 20, "{found} bytes");
        assert!(found < 6 << 20, "counted twice: {found} bytes");
        drop((file, again));
        assert!(bytes(ourselves, device) < before + (3 << 20));
    }
}
