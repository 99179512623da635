//! Looks at the host by using it: what works, what is missing, and the command that mends it.

use std::sync::Arc;

use boxwood_api::Mechanism;
use boxwood_backend::{Finding, Outcome, Probe, ProbeError, Witness};
use boxwood_policy::BoxUser;

use crate::Shared;
use crate::blank::Blank;

pub(crate) async fn probe(shared: Arc<Shared>) -> Result<Probe, ProbeError> {
    // Whoever probes is about to need boxes.
    shared.pool.fill(&shared);
    let mut findings = vec![namespaces(&shared).await];
    findings.extend(boxwood_local::host_findings(&shared.host));
    let start = |spec| crate::start::start(Arc::clone(&shared), spec, Witness::none());
    findings.extend(boxwood_local::look_inside(start).await);
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
