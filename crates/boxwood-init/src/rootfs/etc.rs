//! Writes the box's own files in `/etc`.

use std::fs;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;

use boxwood_init::{Identity, Plan, RootPlan};
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
        RootPlan::Directory(_) | RootPlan::Engine => add_user(&plan.identity),
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

const BOX_ID: u32 = 1000;

fn box_user(uid: u32, gid: u32) -> String {
    format!("box:x:{uid}:{gid}:box:/home/box:/bin/sh\n")
}

fn box_group(gid: u32) -> String {
    format!("box:x:{gid}:\n")
}

fn passwd() -> String {
    let own = box_user(BOX_ID, BOX_ID);
    format!("root:x:0:0:root:/root:/bin/sh\n{own}nobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n")
}

fn group() -> String {
    let own = box_group(BOX_ID);
    format!("root:x:0:\ntty:x:5:\n{own}nogroup:x:65534:\n")
}

/// Adds the commands' user and group to the image's if their ids are unused.
pub(crate) fn add_user(identity: &Identity) -> Result<(), StepError> {
    for (path, text) in user_files(identity)? {
        fs::write(path, text).step_with(|| format!("write {path}"))?;
    }
    Ok(())
}

/// The image's files with the commands' user and group. A file in which the id is already used is left out.
pub(super) fn user_files(identity: &Identity) -> Result<Vec<(&'static str, String)>, StepError> {
    let (uid, gid) = match identity.command_uid {
        // Root exists in every image; `box` is the other user that commands can change to.
        0 => (BOX_ID, BOX_ID),
        uid => (uid, identity.command_gid),
    };
    let mut files = Vec::new();
    for (path, id, line) in [
        ("/etc/passwd", uid, box_user(uid, gid)),
        ("/etc/group", gid, box_group(gid)),
    ] {
        let before = read_table(path)?;
        let id = id.to_string();
        if before
            .lines()
            .any(|entry| entry.split(':').nth(2) == Some(&id))
        {
            continue;
        }
        let gap = if before.is_empty() || before.ends_with('\n') {
            ""
        } else {
            "\n"
        };
        files.push((path, format!("{before}{gap}{line}")));
    }
    Ok(files)
}

/// The path may be anything in an image: a FIFO, a device with side effects, or a link into `/proc`. It is
/// checked before it is opened and must be a regular file of the image.
fn read_table(path: &str) -> Result<String, StepError> {
    const MAX_BYTES: u64 = 1024 * 1024;
    let reading = || format!("read {path}");
    let found = match open_own(path, OFlags::PATH) {
        Err(Errno::NOENT) => return Ok(String::new()),
        found => found.and_then(rustix::fs::fstat).step_with(reading)?,
    };
    let is_file = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile;
    if !is_file || u64::try_from(found.st_size).map_or(true, |size| size > MAX_BYTES) {
        return Err(Errno::INVAL)
            .step_with(|| format!("check that {path} is a file of at most {MAX_BYTES} bytes"));
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = fs::File::from(open_own(path, flags).step_with(reading)?);
    let mut text = String::new();
    file.take(MAX_BYTES)
        .read_to_string(&mut text)
        .step_with(reading)?;
    Ok(text)
}

/// Opens a path only if it is on the same mount as the root. Follows symlinks.
fn open_own(path: &str, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let flags = flags | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_XDEV | ResolveFlags::NO_MAGICLINKS;
    match openat2(CWD, path, flags, Mode::empty(), resolve) {
        // gVisor: this process runs inside the sandboxed kernel and needs no such check.
        Err(Errno::NOSYS) => rustix::fs::open(path, flags, Mode::empty()),
        opened => opened,
    }
}
