//! Adds the box's user to `/etc/passwd` and `/etc/group` of an image, for boxes that the mount helper cannot
//! enter.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;

use boxwood_init::Identity;

use crate::step::{Step, StepError};

/// Adds the commands' user and group if their ids are unused.
pub(crate) fn add(identity: &Identity) -> Result<(), StepError> {
    let (uid, gid) = (identity.command_uid, identity.command_gid);
    let user = format!("box:x:{uid}:{gid}:box:/home/box:/bin/sh\n");
    let group = format!("box:x:{gid}:\n");
    for (path, number, line) in [("/etc/passwd", uid, user), ("/etc/group", gid, group)] {
        let table = read(path).step_with(|| format!("read {path}"))?;
        let number = number.to_string();
        let taken = |entry: &str| entry.split(':').nth(2) == Some(number.as_str());
        if table.lines().any(taken) {
            continue;
        }
        let gap = if table.is_empty() || table.ends_with('\n') {
            ""
        } else {
            "\n"
        };
        fs::write(path, format!("{table}{gap}{line}")).step_with(|| format!("write {path}"))?;
    }
    Ok(())
}

/// The path may be any file type in an image, for example a FIFO or an endless device.
fn read(path: &str) -> io::Result<String> {
    const MOST: u64 = 1024 * 1024;
    let opened = File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path);
    let file = match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
        file => file?,
    };
    let found = file.metadata()?;
    if !found.is_file() || found.len() > MOST {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut text = String::new();
    file.take(MOST).read_to_string(&mut text)?;
    Ok(text)
}
