//! Memory of processes, as the kernel counts it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context, Result};

#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_field_names, reason = "units belong in the names")]
pub(in super::super) struct Memory {
    pub(in super::super) rss_kib: u64,
    pub(in super::super) pss_kib: u64,
    /// Pages that no other process maps: what would be free if the process ended.
    pub(in super::super) private_kib: u64,
}

impl std::ops::AddAssign for Memory {
    fn add_assign(&mut self, other: Self) {
        self.rss_kib += other.rss_kib;
        self.pss_kib += other.pss_kib;
        self.private_kib += other.private_kib;
    }
}

pub(in super::super) fn memory(pid: u32) -> Result<Memory> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))
        .with_context(|| format!("the memory of process {pid} could not be read"))?;
    Ok(parse_rollup(&text))
}

/// The sum over many processes. One that has ended meanwhile counts nothing.
pub(in super::super) fn memory_of(pids: &BTreeSet<u32>) -> Memory {
    let mut sum = Memory::default();
    for pid in pids {
        if let Ok(one) = memory(*pid) {
            sum += one;
        }
    }
    sum
}

/// All processes below these, not the roots themselves.
pub(in super::super) fn descendants(roots: &[u32]) -> Result<BTreeSet<u32>> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        if let Some(parent) = parent(pid) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = BTreeSet::new();
    let mut to_visit = roots.to_vec();
    while let Some(pid) = to_visit.pop() {
        for child in children.get(&pid).into_iter().flatten() {
            if found.insert(*child) {
                to_visit.push(*child);
            }
        }
    }
    Ok(found)
}

fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    parse_parent(&stat)
}

/// The name in brackets may itself hold brackets and spaces; the last one ends it.
fn parse_parent(stat: &str) -> Option<u32> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok()
}

fn parse_rollup(text: &str) -> Memory {
    let field = |name: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
            .and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse().ok())
            .unwrap_or(0)
    };
    Memory {
        rss_kib: field("Rss"),
        pss_kib: field("Pss"),
        private_kib: field("Private_Clean") + field("Private_Dirty"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rollup_is_read_by_name() {
        let memory = parse_rollup(
            "0-1 ---p 00000000 00:00 0 [rollup]\nRss:    100 kB\nPss:     50 kB\nPss_Dirty:  7 kB\n\
             Private_Clean:  10 kB\nPrivate_Dirty:  20 kB\n",
        );
        assert_eq!(
            (memory.rss_kib, memory.pss_kib, memory.private_kib),
            (100, 50, 30)
        );
    }

    #[test]
    fn a_parent_is_found_behind_an_awkward_name() {
        assert_eq!(parse_parent("12 (a) b) S 7 12 12"), Some(7));
    }

    #[test]
    fn our_own_child_is_our_descendant() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .expect("sleep starts");
        let found = descendants(&[std::process::id()]).expect("/proc can be read");
        assert!(found.contains(&child.id()));
        child.kill().expect("sleep can be killed");
        child.wait().expect("sleep can be waited for");
    }
}
