//! Reads the id maps of a user namespace.

use std::fs;
use std::io;

/// Lines of `/proc/PID/uid_map` or `gid_map`: first id inside, first id outside, count.
pub(super) struct Map(Vec<(u32, u32, u32)>);

impl Map {
    pub(super) fn read(path: &str) -> io::Result<Self> {
        let text = fs::read_to_string(path)?;
        let line = |line: &str| {
            let mut numbers = line.split_whitespace().map(str::parse);
            match (numbers.next(), numbers.next(), numbers.next()) {
                (Some(Ok(inside)), Some(Ok(outside)), Some(Ok(count))) => {
                    Ok((inside, outside, count))
                }
                _ => Err(io::ErrorKind::InvalidData.into()),
            }
        };
        text.lines().map(line).collect::<io::Result<_>>().map(Self)
    }

    pub(super) fn outside(&self, id: u32) -> Option<u32> {
        let found = |&(inside, outside, count): &(u32, u32, u32)| {
            let offset = id.checked_sub(inside).filter(|offset| *offset < count)?;
            outside.checked_add(offset)
        };
        self.0.iter().find_map(found)
    }

    pub(super) fn is_hosts_own(&self) -> bool {
        self.outside(0) == Some(0)
    }
}
