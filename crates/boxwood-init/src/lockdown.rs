//! Takes away what init needed to build the box. From here on nothing can be gained again.

use std::os::fd::OwnedFd;

use boxwood_init::{Identity, Plan};
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

use crate::denials;
use crate::step::{Step, StepError};

/// What came out of it.
pub(crate) struct Locked {
    pub(crate) landlock: bool,
    /// Where the kernel asks about refused calls; `None` where it cannot.
    pub(crate) listener: Option<OwnedFd>,
    /// The kernel knows no subreapers: what a command leaves behind is known by a mark.
    pub(crate) marks: bool,
    /// A relay runs beside us, and the box ends with it.
    pub(crate) relayed: bool,
}

/// What init keeps: to become the commands' uid, and to end them.
const KEPT: CapabilitySet = CapabilitySet::SETUID
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::KILL);

pub(crate) fn lock(plan: &Plan) -> Result<Locked, StepError> {
    limits(plan)?;
    capabilities(&plan.identity)?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable).step("close init to ptrace")?;
    set_no_new_privs(true).step("rule out new privileges")?;
    let landlock = plan.landlock && landlock(plan)?;
    Ok(Locked {
        landlock,
        listener: filter(plan)?,
        marks: false,
        relayed: false,
    })
}

fn limits(plan: &Plan) -> Result<(), StepError> {
    let fixed = |value| Rlimit {
        current: Some(value),
        maximum: Some(value),
    };
    // A core dump would be written by the kernel, past every bound of the box. Where the host pipes
    // dumps to a program, no limit but this one keeps the kernel from starting it, as the host's
    // root; with 0 it would still run.
    setrlimit(Resource::Core, fixed(1)).step("forbid core dumps")?;
    if let Some(processes) = plan.process_rlimit {
        setrlimit(Resource::Nproc, fixed(processes)).step("limit the number of processes")?;
    }
    if let Some(bytes) = plan.watched.and_then(|watched| watched.file_bytes) {
        setrlimit(Resource::Fsize, fixed(bytes)).step("limit the size of files")?;
        // Commands inherit it: a write that fails says more than a program that is gone, and programs
        // that only try for a large file can do without.
        signals::ignore(libc::SIGXFSZ).step("leave too large files to whoever writes them")?;
    }
    Ok(())
}

fn capabilities(identity: &Identity) -> Result<(), StepError> {
    for number in 0..64 {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        match remove_capability_from_bounding_set(capability) {
            Ok(()) => {}
            // Past the last one that this kernel knows.
            Err(rustix::io::Errno::INVAL) if number > 0 => break,
            Err(errno) => return Err(errno).step("empty the capability bounding set"),
        }
    }
    absent_is_well(clear_ambient_capability_set()).step("empty the ambient capabilities")?;
    // Neither uid 0 nor a change of uid gives capabilities any more, for good.
    let bits = CapabilitiesSecureBits::NO_ROOT
        | CapabilitiesSecureBits::NO_ROOT_LOCKED
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED;
    absent_is_well(set_capabilities_secure_bits(bits)).step("lock the secure bits")?;
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

/// Kernels that are not Linux (gVisor's) know neither ambient capabilities nor secure bits, and say so
/// by `EINVAL`, which Linux never does here. There is nothing to take away then: the bounding set is
/// empty, and no program gains what is not in it.
fn absent_is_well(outcome: rustix::io::Result<()>) -> rustix::io::Result<()> {
    match outcome {
        Err(rustix::io::Errno::INVAL) => Ok(()),
        outcome => outcome,
    }
}

/// A second fence around what the mounts allow: writing only where a box has something to write,
/// and neither signals nor abstract sockets past the box. Best effort by kernel version; the answer
/// says whether it is in force.
fn landlock(plan: &Plan) -> Result<bool, StepError> {
    let abi = ABI::V6;
    let write = AccessFs::from_write(abi);
    fence(write, &plan.writable_places()).map_err(|error| StepError {
        step: format!("fence the box with Landlock: {error}"),
        errno: libc::EPERM,
    })
}

fn fence(write: BitFlags<AccessFs>, places: &[String]) -> Result<bool, landlock::RulesetError> {
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(write)?
        .scope(Scope::from_all(ABI::V6))?
        .create()?;
    for place in places {
        // A place that this box does not have needs no rule.
        let Ok(opened) = PathFd::new(place) else {
            continue;
        };
        let is_dir = std::path::Path::new(place).is_dir();
        let access = if is_dir {
            write
        } else {
            write & AccessFs::from_file(ABI::V6)
        };
        ruleset = ruleset.add_rule(PathBeneath::new(opened, access))?;
    }
    Ok(ruleset.restrict_self()?.ruleset != RulesetStatus::NotEnforced)
}

/// Installs the deny-list. A kernel that cannot ask (or a filter above us that already does) leaves
/// refusals nameless, never absent.
fn filter(plan: &Plan) -> Result<Option<OwnedFd>, StepError> {
    let rules = denials::rules(plan);
    let asking = seccomp::assemble(&rules, Refusal::Named);
    if let Ok(listener) = asking.install_with_listener() {
        return Ok(Some(listener));
    }
    let silent = seccomp::assemble(&rules, Refusal::Errno(libc::EPERM));
    silent.install().step("install the system call filter")?;
    Ok(None)
}
