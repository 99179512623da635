//! Assigns host uids and gids to boxes.
//!
//! As root each box gets its own range of 65,536 ids from 524288 upwards that does not overlap with
//! `/etc/subuid`. An ordinary user has one uid and, with `newuidmap`, a range of subordinate ones.

mod map;
mod slots;

use std::fs;
use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

use boxwood_backend::StartError;
use boxwood_init::Identity;
use boxwood_policy::BoxUser;
use serde::{Deserialize, Serialize};

use crate::lock;
use map::Map;
use slots::{FIRST_ID, RANGE, Slots};

const BOX_UID: u32 = 1000;
/// Uid of init if commands have uid 0. No other process of the box has it.
const OTHER_INIT_UID: u32 = 65_533;

#[derive(Clone)]
pub enum Mapping {
    Root {
        slots: Arc<Mutex<Slots>>,
    },
    Subordinate {
        uid: u32,
        gid: u32,
        first_uid: u32,
        first_gid: u32,
        count: u32,
        newuidmap: PathBuf,
        newgidmap: PathBuf,
    },
    Single {
        uid: u32,
        gid: u32,
        why: String,
    },
}

/// The ids of one box. Dropping it frees the range.
pub struct BoxIds {
    record: IdsRecord,
    /// The allocator to which the slot is returned.
    slots: Option<Arc<Mutex<Slots>>>,
}

/// The ids of a box, as in its record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdsRecord {
    pub identity: Identity,
    /// Host ids of the box's commands.
    pub command_uid: u32,
    pub command_gid: u32,
    /// Host id of init.
    pub init_uid: u32,
    slot: Option<u32>,
    /// The ids are not the daemon's own, and the daemon may chown files to them.
    foreign: bool,
}

impl IdsRecord {
    fn new(identity: Identity, command_uid: u32, command_gid: u32, init_uid: u32) -> Self {
        Self {
            identity,
            command_uid,
            command_gid,
            init_uid,
            slot: None,
            foreign: false,
        }
    }
}

impl Deref for BoxIds {
    type Target = IdsRecord;

    fn deref(&self) -> &IdsRecord {
        &self.record
    }
}

impl From<IdsRecord> for BoxIds {
    fn from(record: IdsRecord) -> Self {
        Self {
            record,
            slots: None,
        }
    }
}

impl BoxIds {
    /// The ids of a box whose maps were written by an engine, from `/proc` of its first process.
    pub fn observed(pid: i32, user: BoxUser) -> io::Result<Self> {
        let uids = Map::read(&format!("/proc/{pid}/uid_map"))?;
        let gids = Map::read(&format!("/proc/{pid}/gid_map"))?;
        let identity = identity(user, uids.is_hosts_own());
        let outside = |map: &Map, id: u32| {
            map.outside(id)
                .ok_or_else(|| io::Error::other(format!("the box's user namespace has no id {id}")))
        };
        let command_uid = outside(&uids, identity.command_uid)?;
        let command_gid = outside(&gids, identity.command_gid)?;
        let init_uid = outside(&uids, identity.init_uid)?;
        let mut record = IdsRecord::new(identity, command_uid, command_gid, init_uid);
        record.foreign = rustix::process::geteuid().is_root();
        Ok(record.into())
    }

    /// Returns true if the id maps of process `pid` match these ids.
    pub(crate) fn are_those_of(&self, pid: i32) -> io::Result<bool> {
        let uids = Map::read(&format!("/proc/{pid}/uid_map"))?;
        let gids = Map::read(&format!("/proc/{pid}/gid_map"))?;
        let identity = &self.identity;
        Ok(uids.outside(identity.command_uid) == Some(self.command_uid)
            && uids.outside(identity.init_uid) == Some(self.init_uid)
            && gids.outside(identity.command_gid) == Some(self.command_gid))
    }

    /// The ids of a box on another machine or kernel, which have no meaning on this host.
    pub fn remote(identity: Identity) -> Self {
        let (uid, gid) = (identity.command_uid, identity.command_gid);
        IdsRecord::new(identity, uid, gid, identity.init_uid).into()
    }

    /// For the next daemon, which passes it to [`Mapping::claim`].
    pub fn record(&self) -> IdsRecord {
        self.record.clone()
    }

    /// Returns true if ids in the box are the same ids on the host, as without a user namespace of its own.
    pub fn is_hosts_own(&self) -> bool {
        let inside = self.identity;
        // Both are compared because a user namespace may map one of them to itself by chance.
        (self.init_uid, self.command_uid) == (inside.init_uid, inside.command_uid)
    }

    /// Owner for files of the box's commands; `None` if that is the daemon's own user.
    pub fn owner(&self) -> Option<(u32, u32)> {
        self.foreign.then_some((self.command_uid, self.command_gid))
    }

    /// The uid that owns the box's user namespace: the first of its range, which no process outside of the
    /// box has. `None` if the daemon's own uid owns it.
    pub fn namespace_owner(&self) -> Option<u32> {
        self.slot
            .map(|_| self.command_uid - self.identity.command_uid)
    }
}

impl Drop for BoxIds {
    fn drop(&mut self) {
        if let (Some(slot), Some(slots)) = (self.slot, &self.slots) {
            lock(slots).used.remove(&slot);
        }
    }
}

impl Mapping {
    pub fn detect() -> Result<Self, StartError> {
        let uid = rustix::process::geteuid().as_raw();
        let gid = rustix::process::getegid().as_raw();
        if uid == 0 {
            let mut assigned = subordinate_ranges("/etc/subuid", None);
            assigned.extend(subordinate_ranges("/etc/subgid", None));
            let slots = Slots {
                assigned,
                ..Slots::default()
            };
            return Ok(Self::Root {
                slots: Arc::new(Mutex::new(slots)),
            });
        }
        let single = |why: &str| {
            Ok(Self::Single {
                uid,
                gid,
                why: why.to_owned(),
            })
        };
        let (Some(newuidmap), Some(newgidmap)) = (find("newuidmap"), find("newgidmap")) else {
            return single("newuidmap is not installed (package `uidmap`)");
        };
        let names = [user_name(uid), Some(uid.to_string())];
        let own = |path: &str| {
            let mut ranges = names
                .iter()
                .flatten()
                .flat_map(|name| subordinate_ranges(path, Some(name)));
            ranges.find(|(_, count)| *count > BOX_UID)
        };
        match (own("/etc/subuid"), own("/etc/subgid")) {
            (Some((first_uid, uids)), Some((first_gid, gids))) => Ok(Self::Subordinate {
                uid,
                gid,
                first_uid,
                first_gid,
                count: uids.min(gids).min(OTHER_INIT_UID),
                newuidmap,
                newgidmap,
            }),
            _ => single("this user has no range in /etc/subuid and /etc/subgid"),
        }
    }

    pub fn is_root(&self) -> bool {
        matches!(self, Self::Root { .. })
    }

    /// Why init and commands share a uid; `None` if they do not.
    pub fn single_uid_reason(&self) -> Option<&str> {
        match self {
            Self::Single { why, .. } => Some(why),
            Self::Root { .. } | Self::Subordinate { .. } => None,
        }
    }

    pub fn allocate(&self, user: BoxUser) -> io::Result<BoxIds> {
        let identity = identity(user, false);
        let (command, init) = (identity.command_uid, identity.init_uid);
        Ok(match self {
            Self::Root { slots } => {
                let slot = lock(slots).take()?;
                let base = FIRST_ID + slot * RANGE;
                BoxIds {
                    record: IdsRecord {
                        slot: Some(slot),
                        foreign: true,
                        ..IdsRecord::new(identity, base + command, base + command, base + init)
                    },
                    slots: Some(Arc::clone(slots)),
                }
            }
            Self::Subordinate {
                uid,
                gid,
                first_uid,
                ..
            } => IdsRecord::new(identity, *uid, *gid, *first_uid).into(),
            Self::Single { uid, gid, .. } => {
                let identity = Identity {
                    init_uid: command,
                    single_uid: true,
                    ..identity
                };
                IdsRecord::new(identity, *uid, *gid, *uid).into()
            }
        })
    }

    /// Claims the ids of a box that an earlier daemon created.
    pub fn claim(&self, record: &IdsRecord) -> io::Result<BoxIds> {
        let slots = match (record.slot, self) {
            (None, _) => None,
            (Some(slot), Self::Root { slots }) => {
                lock(slots).claim(slot)?;
                Some(Arc::clone(slots))
            }
            (Some(_), _) => {
                return Err(io::Error::other(
                    "the box was created by root, and this daemon does not run as root",
                ));
            }
        };
        let mut record = record.clone();
        record.foreign &= rustix::process::geteuid().is_root();
        Ok(BoxIds { record, slots })
    }

    /// Reserves the ranges of ids that running processes have, so that new boxes do not use them.
    pub(crate) fn reserve_live(&self) {
        let Self::Root { slots } = self else { return };
        lock(slots).reserve_live();
    }

    /// Frees the reserved ranges that were not claimed.
    pub(crate) fn release_reserved(&self) {
        if let Self::Root { slots } = self {
            lock(slots).reserved.clear();
        }
    }

    /// Writes the maps of a process in a new user namespace. Blocks.
    pub fn write(&self, pid: i32, ids: &BoxIds) -> io::Result<()> {
        match self {
            Self::Root { .. } => {
                let base = ids.command_uid - ids.identity.command_uid;
                let line = format!("0 {base} {RANGE}\n");
                fs::write(format!("/proc/{pid}/gid_map"), &line)?;
                fs::write(format!("/proc/{pid}/uid_map"), &line)
            }
            Self::Single { uid, gid, .. } => {
                fs::write(format!("/proc/{pid}/setgroups"), "deny")?;
                let line = |id| format!("{} {id} 1\n", ids.identity.command_uid);
                fs::write(format!("/proc/{pid}/gid_map"), line(gid))?;
                fs::write(format!("/proc/{pid}/uid_map"), line(uid))
            }
            Self::Subordinate {
                uid,
                gid,
                first_uid,
                first_gid,
                count,
                newuidmap,
                newgidmap,
            } => {
                let command = ids.identity.command_uid;
                let gids = triples(command, *gid, *first_gid, *count);
                run_tool(newgidmap, pid, &gids)?;
                let uids = triples(command, *uid, *first_uid, *count);
                run_tool(newuidmap, pid, &uids)
            }
        }
    }
}

/// Init has uid 0 unless commands have it or it is the host's uid 0.
fn identity(user: BoxUser, hosts_own: bool) -> Identity {
    let command = match user {
        BoxUser::Box => BOX_UID,
        BoxUser::Root => 0,
    };
    Identity {
        init_uid: if hosts_own || command == 0 {
            OTHER_INIT_UID
        } else {
            0
        },
        command_uid: command,
        command_gid: command,
        single_uid: false,
    }
}

/// Maps the caller's own id to `command` and subordinate ids to the rest. Init gets one of them if commands
/// are uid 0.
fn triples(command: u32, own: u32, first: u32, count: u32) -> Vec<String> {
    let mut lines = vec![(command, own, 1)];
    let mut next = first;
    if command > 0 {
        lines.push((0, next, command));
        next += command;
        let rest = count - command;
        lines.push((command + 1, next, rest - 1));
    } else {
        lines.push((OTHER_INIT_UID, next, 1));
        lines.push((1, next + 1, count - 1));
    }
    lines
        .into_iter()
        .flat_map(|(inside, outside, n)| [inside, outside, n].map(|id| id.to_string()))
        .collect()
}

fn run_tool(tool: &Path, pid: i32, triples: &[String]) -> io::Result<()> {
    let output = Command::new(tool)
        .env_clear()
        .arg(pid.to_string())
        .args(triples)
        .output()?;
    if output.status.success() {
        return Ok(());
    }
    let stderr_text = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!(
        "{} failed: {}",
        tool.display(),
        stderr_text.trim()
    )))
}

fn subordinate_ranges(path: &str, of: Option<&str>) -> Vec<(u32, u32)> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines()
        .filter_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next()?;
            if of.is_some_and(|of| of != name) {
                return None;
            }
            Some((
                fields.next()?.trim().parse().ok()?,
                fields.next()?.trim().parse().ok()?,
            ))
        })
        .collect()
}

fn user_name(uid: u32) -> Option<String> {
    let passwd = fs::read_to_string("/etc/passwd").ok()?;
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    })
}

/// Setuid tools are looked up in the standard directories, not in `PATH`.
fn find(tool: &str) -> Option<PathBuf> {
    ["/usr/bin", "/bin", "/usr/sbin", "/sbin"]
        .into_iter()
        .map(|directory| Path::new(directory).join(tool))
        .find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rootless_box_maps_the_caller_to_its_commands() {
        assert_eq!(
            triples(1000, 42, 100_000, 65_533),
            [
                "1000", "42", "1", "0", "100000", "1000", "1001", "101000", "64532"
            ]
        );
        assert_eq!(
            triples(0, 42, 100_000, 10),
            ["0", "42", "1", "65533", "100000", "1", "1", "100001", "9"]
        );
    }
}
