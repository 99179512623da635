//! Writes the box's own files in `/etc`.

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
        // Replace a symlink of the image instead of writing through it.
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

/// Adds the box's user to the image's users if its id is unused.
fn add_user() -> Result<(), StepError> {
    for (path, line) in USER_FILES {
        if let Some(text) = with_user(path, line)? {
            fs::write(path, text).step_with(|| format!("write {path}"))?;
        }
    }
    Ok(())
}

/// The user and group files, and the box's entry in each.
pub(super) const USER_FILES: [(&str, &str); 2] =
    [("/etc/passwd", BOX_PASSWD), ("/etc/group", BOX_GROUP)];

/// The image's file with the box's entry; `None` if its id is already used.
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

/// The path may be anything in an image: a FIFO, a device with side effects, or a link into `/proc`. It is
/// checked before it is opened and must be a regular file of the image.
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

/// Opens a path only if it is on the same mount as the root. Follows symlinks.
fn open_own(path: &str, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let flags = flags | OFlags::CLOEXEC;
    let how = ResolveFlags::NO_XDEV | ResolveFlags::NO_MAGICLINKS;
    match openat2(CWD, path, flags, Mode::empty(), how) {
        // gVisor: this process runs inside the sandboxed kernel and needs no such check.
        Err(Errno::NOSYS) => rustix::fs::open(path, flags, Mode::empty()),
        opened => opened,
    }
}
