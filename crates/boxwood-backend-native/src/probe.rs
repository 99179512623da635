//! Looks at the host by using it: what works, what is missing, and the command that mends it.

mod inside;

use std::sync::Arc;

use boxwood_api::Mechanism;
use boxwood_backend::{Finding, Outcome, Probe, ProbeError};
use boxwood_policy::BoxUser;

use crate::Shared;
use crate::blank::Blank;

pub(crate) async fn probe(shared: Arc<Shared>) -> Result<Probe, ProbeError> {
    // Whoever probes is about to need boxes.
    shared.pool.fill(&shared);
    let mut findings = vec![namespaces(&shared).await, uids(&shared)];
    findings.extend(limits(&shared));
    findings.push(tree_kill(&shared));
    findings.push(landlock(&shared));
    findings.extend(inside::look(&shared).await);
    findings.push(network(&shared).await);
    Ok(Probe { findings })
}

/// Makes a blank box and removes it again: all the namespaces, maps and groups a real one has.
async fn namespaces(shared: &Arc<Shared>) -> Finding {
    let outcome = match Blank::make(shared, BoxUser::Box).await {
        Ok(blank) => match blank.remains.clear().await {
            Ok(()) => Outcome::Works {
                detail: "user, mount, pid, net, ipc, uts and cgroup namespaces".to_owned(),
            },
            Err(error) => Outcome::Fatal {
                why: format!("a box could not be removed again: {error}"),
                fix: "look for processes that hold on to the host's cgroups".to_owned(),
            },
        },
        Err(error) => Outcome::Fatal {
            why: format!("a box's namespaces could not be made: {error}"),
            fix: namespace_fix().to_owned(),
        },
    };
    Finding {
        name: "namespaces",
        mechanism: Some(Mechanism::UserNamespace),
        outcome,
        matters: "without them there is no box at all",
    }
}

fn namespace_fix() -> &'static str {
    let says = |path: &str, value: &str| {
        std::fs::read_to_string(path).is_ok_and(|text| text.trim() == value)
    };
    if says(
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        "1",
    ) {
        "sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0"
    } else if says("/proc/sys/kernel/unprivileged_userns_clone", "0") {
        "sudo sysctl kernel.unprivileged_userns_clone=1"
    } else if says("/proc/sys/user/max_user_namespaces", "0") {
        "sudo sysctl user.max_user_namespaces=15000"
    } else {
        "in a container, start it with `--privileged` or on the host itself"
    }
}

fn uids(shared: &Shared) -> Finding {
    let outcome = match shared.host.mapping.single_uid_reason() {
        None => Outcome::Works {
            detail: "init and commands have different uids".to_owned(),
        },
        Some(why) => Outcome::Missing {
            why: why.to_owned(),
            fix: "sudo apt-get install uidmap && sudo usermod --add-subuids 100000-165535 \
                  --add-subgids 100000-165535 $USER"
                .to_owned(),
        },
    };
    Finding {
        name: "separate uids",
        mechanism: Some(Mechanism::SeparateInitUid),
        outcome,
        matters: "a command of init's own uid can slow it down or end the box",
    }
}

fn limits(shared: &Shared) -> Vec<Finding> {
    let missing = shared.host.cgroups.missing();
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
        let outcome = match missing.iter().find(|(known, _)| *known == mechanism) {
            None => Outcome::Works {
                detail: "by cgroup".to_owned(),
            },
            Some((_, why)) if mechanism == Mechanism::PidsLimit => Outcome::Works {
                detail: format!("by rlimit only: {why}"),
            },
            Some((_, why)) => Outcome::Missing {
                why: why.clone(),
                fix: "run the daemon as root: sudo boxwood serve".to_owned(),
            },
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

fn tree_kill(shared: &Shared) -> Finding {
    let outcome = match (
        shared.host.cgroups.kills(),
        shared.host.mapping.single_uid_reason(),
    ) {
        (true, _) => Outcome::Works {
            detail: "by cgroup.kill".to_owned(),
        },
        (false, None) => Outcome::Works {
            detail: "by a supervisor per command".to_owned(),
        },
        (false, Some(why)) => Outcome::Missing {
            why: format!("a command can end its own supervisor: {why}"),
            fix: "sudo apt-get install uidmap, or run the daemon as root".to_owned(),
        },
    };
    Finding {
        name: "tree kill",
        mechanism: Some(Mechanism::TreeKill),
        outcome,
        matters: "a timed-out command must not leave processes behind",
    }
}

fn landlock(shared: &Shared) -> Finding {
    let outcome = if shared.host.landlock {
        Outcome::Works {
            detail: "a second fence around files".to_owned(),
        }
    } else {
        Outcome::Missing {
            why: "the kernel does not have it, or it is switched off".to_owned(),
            fix: "boot a kernel of 5.13 or later with `lsm=landlock,...`".to_owned(),
        }
    };
    Finding {
        name: "landlock",
        mechanism: Some(Mechanism::Landlock),
        outcome,
        matters: "a mistake in the mounts would still be fenced",
    }
}

/// Gives a blank box a way out and takes it away again.
async fn network(shared: &Arc<Shared>) -> Finding {
    let outcome = match Blank::make(shared, BoxUser::Box).await {
        Ok(blank) => {
            let attached = boxwood_local::attach(&shared.host, &blank.remains).await;
            let cleared = blank.remains.clear().await;
            match (attached, cleared) {
                (Ok(_), Ok(())) => Outcome::Works {
                    detail: boxwood_local::caution()
                        .unwrap_or_else(|| "boxes can be given a network of their own".to_owned()),
                },
                (Err(error), _) => Outcome::Missing {
                    why: error.to_string(),
                    fix: error.hint().unwrap_or("see the log").to_owned(),
                },
                (Ok(_), Err(error)) => Outcome::Missing {
                    why: format!("it could not be taken away again: {error}"),
                    fix: "see the log".to_owned(),
                },
            }
        }
        Err(error) => Outcome::Missing {
            why: error.to_string(),
            fix: namespace_fix().to_owned(),
        },
    };
    Finding {
        name: "network",
        // The namespace itself is there in any case; this is about the way out of it.
        mechanism: None,
        outcome,
        matters: "`network: on` is refused without it",
    }
}
