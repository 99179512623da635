//! Probes of the host and of a running box, shared by all backends.

mod inside;

use boxwood_api::Mechanism;
use boxwood_backend::{Finding, Outcome};

use crate::host::LocalHost;
pub use inside::probe_box;

/// What boxes can have on this host: uids, limits, tree kill and Landlock.
pub fn probe_host(host: &LocalHost) -> Vec<Finding> {
    let mut findings = vec![uids(host)];
    findings.extend(limits(host));
    findings.push(tree_kill(host));
    findings.push(landlock(host));
    findings
}

fn uids(host: &LocalHost) -> Finding {
    let outcome = match host.mapping.single_uid_reason() {
        None => Outcome::works("init and commands have different uids"),
        Some(why) => Outcome::missing(
            why,
            "sudo apt-get install uidmap && sudo usermod --add-subuids 100000-165535 \
                  --add-subgids 100000-165535 $USER",
        ),
    };
    Finding {
        name: "separate uids",
        mechanism: Some(Mechanism::SeparateInitUid),
        outcome,
        matters: "a command with init's uid can slow init down or end the box",
    }
}

fn limits(host: &LocalHost) -> Vec<Finding> {
    let missing = host.cgroups.missing();
    [
        (
            "cpu limit",
            Mechanism::CpuLimit,
            "one box can otherwise take every core",
        ),
        (
            "memory limit",
            Mechanism::MemoryLimit,
            "one box can otherwise take all memory",
        ),
        (
            "process limit",
            Mechanism::PidsLimit,
            "one box can otherwise fill the process table",
        ),
    ]
    .into_iter()
    .map(|(name, mechanism, matters)| {
        let outcome = match missing.iter().find(|(other, _)| *other == mechanism) {
            None => Outcome::works("by cgroup"),
            Some((_, why)) if mechanism == Mechanism::PidsLimit => {
                Outcome::works(format!("by rlimit only: {why}"))
            }
            Some((_, why)) if host.mapping.is_root() => Outcome::missing(
                why.clone(),
                "make the controller available: check /proc/cgroups and that /sys/fs/cgroup is \
                 writable; in a container, start it with `--privileged`",
            ),
            Some((_, why)) => {
                Outcome::missing(why.clone(), "run the daemon as root: sudo boxwood serve")
            }
        };
        Finding {
            name,
            mechanism: Some(mechanism),
            outcome,
            matters,
        }
    })
    .collect()
}

fn tree_kill(host: &LocalHost) -> Finding {
    let outcome = match (host.cgroups.kills(), host.mapping.single_uid_reason()) {
        (true, _) => Outcome::works("by cgroup.kill"),
        (false, None) => Outcome::works("by a supervisor per command"),
        (false, Some(why)) => Outcome::missing(
            format!("a command can end its own supervisor: {why}"),
            "sudo apt-get install uidmap, or run the daemon as root",
        ),
    };
    Finding {
        name: "tree kill",
        mechanism: Some(Mechanism::TreeKill),
        outcome,
        matters: "a timed-out command must not leave processes behind",
    }
}

fn landlock(host: &LocalHost) -> Finding {
    let outcome = if host.landlock {
        Outcome::works("a second layer of file access control")
    } else {
        Outcome::missing(
            "the kernel does not support it, or it is disabled",
            "boot a kernel of 5.13 or later with `lsm=landlock,...`",
        )
    };
    Finding {
        name: "landlock",
        mechanism: Some(Mechanism::Landlock),
        outcome,
        matters: "it limits file access even if a mount is wrong",
    }
}
