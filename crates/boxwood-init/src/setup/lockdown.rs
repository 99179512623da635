//! Drops the privileges that init needed to set up the box. They cannot be regained.

use std::os::fd::OwnedFd;

use boxwood_init::{FromInit, Identity, Plan};
use boxwood_sys::seccomp::{self, Refusal};
use boxwood_sys::signals;
use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetStatus, Scope,
};
use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
use rustix::thread::{
    CapabilitiesSecureBits, CapabilitySet, CapabilitySets, Gid, Uid, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_capabilities_secure_bits,
    set_keep_capabilities, set_no_new_privs, set_thread_res_gid, set_thread_res_uid,
};

use crate::setup::seccomp_rules;
use crate::step::{Step, StepError};

pub(crate) struct Locked {
    pub(crate) landlock: bool,
    /// The seccomp notification descriptor; `None` if the kernel does not support it.
    pub(crate) listener: Option<OwnedFd>,
    /// The kernel has no subreapers: descendants of a command are found by a supplementary group.
    pub(crate) group_tags: bool,
    /// A relay process runs beside init, and the box ends with it.
    pub(crate) relayed: bool,
}

impl Locked {
    pub(crate) fn ready(&self) -> FromInit {
        FromInit::Ready {
            landlock: self.landlock,
            notify: self.listener.is_some(),
        }
    }
}

/// Capabilities that init needs to start commands under their uid and to kill them.
const KEPT: CapabilitySet = CapabilitySet::SETUID
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::KILL);

pub(crate) fn lock(plan: &Plan) -> Result<Locked, StepError> {
    limits(plan)?;
    capabilities(&plan.identity)?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable).step("make init undumpable")?;
    set_no_new_privs(true).step("set no_new_privs")?;
    let landlock = plan.landlock && landlock(plan)?;
    Ok(Locked {
        landlock,
        listener: filter(plan)?,
        group_tags: false,
        relayed: false,
    })
}

fn limits(plan: &Plan) -> Result<(), StepError> {
    let fixed = |value| Rlimit {
        current: Some(value),
        maximum: Some(value),
    };
    // The kernel writes core dumps outside of the box's limits. Where the host pipes dumps to a program,
    // only a limit of exactly 1 stops the kernel from starting that program as the host's root; with 0 it
    // would still run.
    setrlimit(Resource::Core, fixed(1)).step("disable core dumps")?;
    if let Some(processes) = plan.process_rlimit {
        setrlimit(Resource::Nproc, fixed(processes)).step("limit the number of processes")?;
    }
    if let Some(bytes) = plan.watched.and_then(|watched| watched.file_bytes) {
        setrlimit(Resource::Fsize, fixed(bytes)).step("limit the size of files")?;
        // Inherited by commands: a write then fails with EFBIG instead of killing the program.
        signals::ignore(libc::SIGXFSZ).step("ignore SIGXFSZ")?;
    }
    Ok(())
}

fn capabilities(identity: &Identity) -> Result<(), StepError> {
    for number in 0..64 {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        match remove_capability_from_bounding_set(capability) {
            Ok(()) => {}
            // Past the last capability of this kernel.
            Err(rustix::io::Errno::INVAL) if number > 0 => break,
            Err(errno) => return Err(errno).step("empty the capability bounding set"),
        }
    }
    ignore_unsupported(clear_ambient_capability_set()).step("clear the ambient capabilities")?;
    // From here on neither uid 0 nor a change of uid grants capabilities.
    let bits = CapabilitiesSecureBits::NO_ROOT
        | CapabilitiesSecureBits::NO_ROOT_LOCKED
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED;
    ignore_unsupported(set_capabilities_secure_bits(bits)).step("lock the secure bits")?;
    if !identity.single_uid && identity.init_uid != 0 {
        let (uid, gid) = (
            Uid::from_raw(identity.init_uid),
            Gid::from_raw(identity.init_uid),
        );
        set_keep_capabilities(true).step("keep capabilities over a change of uid")?;
        set_thread_res_gid(gid, gid, gid).step("become init's gid")?;
        set_thread_res_uid(uid, uid, uid).step("become init's uid")?;
        set_keep_capabilities(false).step("stop keeping capabilities")?;
    }
    let sets = CapabilitySets {
        effective: KEPT,
        permitted: KEPT,
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, sets).step("drop capabilities")
}

/// gVisor supports neither ambient capabilities nor secure bits and returns `EINVAL`, which Linux never does
/// here. The empty bounding set alone is then sufficient.
fn ignore_unsupported(outcome: rustix::io::Result<()>) -> rustix::io::Result<()> {
    match outcome {
        Err(rustix::io::Errno::INVAL) => Ok(()),
        outcome => outcome,
    }
}

/// A second barrier behind the mounts: allows writes only below the writable paths, and neither signals nor
/// abstract sockets to processes outside of the box. Best effort by kernel version; returns whether it is
/// enforced.
fn landlock(plan: &Plan) -> Result<bool, StepError> {
    let abi = ABI::V6;
    let write = AccessFs::from_write(abi);
    restrict(write, &plan.writable_paths()).map_err(|error| StepError {
        step: format!("apply the Landlock rules: {error}"),
        errno: libc::EPERM,
    })
}

fn restrict(write: BitFlags<AccessFs>, paths: &[String]) -> Result<bool, landlock::RulesetError> {
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(write)?
        .scope(Scope::from_all(ABI::V6))?
        .create()?;
    for path in paths {
        // Paths that this box does not have need no rule.
        let Ok(opened) = PathFd::new(path) else {
            continue;
        };
        let is_dir = std::path::Path::new(path).is_dir();
        let access = if is_dir {
            write
        } else {
            write & AccessFs::from_file(ABI::V6)
        };
        ruleset = ruleset.add_rule(PathBeneath::new(opened, access))?;
    }
    Ok(ruleset.restrict_self()?.ruleset != RulesetStatus::NotEnforced)
}

/// Installs the deny-list. Without seccomp notifications (an old kernel, or an outer filter that already uses
/// them) denied calls still fail, but are not reported by name.
fn filter(plan: &Plan) -> Result<Option<OwnedFd>, StepError> {
    let rules = seccomp_rules::rules(plan);
    let notifying = seccomp::assemble(&rules, Refusal::Named);
    if let Ok(listener) = notifying.install_with_listener() {
        return Ok(Some(listener));
    }
    let plain = seccomp::assemble(&rules, Refusal::Errno(libc::EPERM));
    plain.install().step("install the seccomp filter")?;
    Ok(None)
}
