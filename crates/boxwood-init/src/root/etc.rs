//! The files of `/etc` that a box has of its own.

use std::fs;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;

use boxwood_init::{Plan, RootPlan};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;

use crate::step::{Step, StepError};

pub(super) fn write(plan: &Plan) -> Result<(), StepError> {
    let write = |name: &str, content: &str| {
        let path = format!("/etc/{name}");
        // An image may have a symlink there; what it points to is not what is meant.
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(error).step_with(|| format!("replace {path}"));
            }
            _ => {}
        }
        fs::write(&path, content).step_with(|| format!("write {path}"))
    };
    let name = &plan.hostname;
    write("hostname", &format!("{name}\n"))?;
    write("hosts", &hosts(plan))?;
    write("resolv.conf", &resolv_conf(plan))?;
    match plan.root {
        RootPlan::Host | RootPlan::Jail => {
            write("passwd", &passwd())?;
            write("group", &group())?;
            write(
                "nsswitch.conf",
                "passwd: files\ngroup: files\nhosts: files dns\n",
            )?;
            write("shells", "/bin/sh\n/bin/bash\n")
        }
        RootPlan::Directory(_) | RootPlan::Engine => add_user(),
    }
}

pub(super) fn hosts(plan: &Plan) -> String {
    let name = &plan.hostname;
    format!("127.0.0.1 localhost {name}\n::1 localhost ip6-localhost\n")
}

pub(super) fn resolv_conf(plan: &Plan) -> String {
    let servers = plan.network.iter().flat_map(|network| &network.dns);
    servers.fold(String::new(), |text, server| {
        text + &format!("nameserver {server}\n")
    })
}

const BOX_PASSWD: &str = "box:x:1000:1000:box:/home/box:/bin/sh\n";
const BOX_GROUP: &str = "box:x:1000:\n";

fn passwd() -> String {
    format!(
        "root:x:0:0:root:/root:/bin/sh\n{BOX_PASSWD}nobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n"
    )
}

fn group() -> String {
    format!("root:x:0:\ntty:x:5:\n{BOX_GROUP}nogroup:x:65534:\n")
}

/// Images have users of their own; the box's is added when its number is free.
fn add_user() -> Result<(), StepError> {
    for (path, line) in USER_FILES {
        if let Some(text) = with_user(path, line)? {
            fs::write(path, text).step_with(|| format!("write {path}"))?;
        }
    }
    Ok(())
}

/// The tables of users and groups, and the box's entry in each.
pub(super) const USER_FILES: [(&str, &str); 2] =
    [("/etc/passwd", BOX_PASSWD), ("/etc/group", BOX_GROUP)];

/// The image's table with the box's entry; `None` when somebody has its number already.
pub(super) fn with_user(path: &str, line: &str) -> Result<Option<String>, StepError> {
    let before = read_table(path).step_with(|| format!("read {path}"))?;
    let taken = before
        .lines()
        .any(|entry| entry.split(':').nth(2) == Some("1000"));
    let gap = if before.is_empty() || before.ends_with('\n') {
        ""
    } else {
        "\n"
    };
    Ok((!taken).then(|| format!("{before}{gap}{line}")))
}

/// An image may have anything in that place: a pipe, a device that does something when it is opened, a
/// link to what only the kernel and its root know. So it is looked at before it is opened, and it is a
/// file of the image's own or none.
fn read_table(path: &str) -> io::Result<String> {
    const MOST: u64 = 1024 * 1024;
    let found = match open_own(path, OFlags::PATH) {
        Err(Errno::NOENT) => return Ok(String::new()),
        found => rustix::fs::fstat(found?)?,
    };
    let is_file = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile;
    if !is_file || u64::try_from(found.st_size).map_or(true, |size| size > MOST) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let file = fs::File::from(open_own(
        path,
        OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY,
    )?);
    let mut text = String::new();
    file.take(MOST).read_to_string(&mut text)?;
    Ok(text)
}

/// Opens what is on the same mount as the root, links included.
fn open_own(path: &str, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let flags = flags | OFlags::CLOEXEC;
    let how = ResolveFlags::NO_XDEV | ResolveFlags::NO_MAGICLINKS;
    match openat2(CWD, path, flags, Mode::empty(), how) {
        // Not Linux: the box is behind a kernel of its own, and this is one of its processes.
        Err(Errno::NOSYS) => rustix::fs::open(path, flags, Mode::empty()),
        opened => opened,
    }
}
