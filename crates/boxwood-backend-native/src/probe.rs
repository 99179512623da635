//! Probes the host by starting boxes: what works, what is missing, and how to fix it.

use boxwood_api::{Mechanism, with_causes};
use boxwood_backend::{Finding, Outcome, Probe, ProbeError, StartRecorder};
use boxwood_policy::BoxUser;

use crate::NativeBackend;
use crate::prewarmed::Prewarmed;

pub(crate) async fn probe(backend: NativeBackend) -> Result<Probe, ProbeError> {
    // A probe is usually followed by a start.
    backend.pool.fill(&backend);
    let mut findings = vec![namespaces(&backend).await];
    findings.extend(boxwood_local::probe_host(&backend.host));
    let start = |spec| crate::start::start(backend.clone(), spec, StartRecorder::none());
    findings.extend(boxwood_local::probe_box(start).await);
    findings.push(network(&backend).await);
    Ok(Probe { findings })
}

/// Creates and removes a prewarmed box, with all namespaces, maps and groups of a real one.
async fn namespaces(backend: &NativeBackend) -> Finding {
    let outcome = match Prewarmed::make(backend, BoxUser::Box).await {
        Ok(prewarmed) => match prewarmed.resources.clear().await {
            Ok(()) => Outcome::works("user, mount, pid, net, ipc, uts and cgroup namespaces"),
            Err(error) => Outcome::fatal(
                format!("failed to remove a box: {error}"),
                "look for processes that keep the box's cgroups in use",
            ),
        },
        Err(error) => Outcome::fatal(
            format!("failed to create the namespaces of a box: {error}"),
            namespace_fix(),
        ),
    };
    Finding {
        name: "namespaces",
        mechanism: Some(Mechanism::UserNamespace),
        outcome,
        matters: "boxes cannot start without them",
    }
}

fn namespace_fix() -> &'static str {
    let has_value = |path: &str, value: &str| {
        std::fs::read_to_string(path).is_ok_and(|text| text.trim() == value)
    };
    if has_value(
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        "1",
    ) {
        "sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0"
    } else if has_value("/proc/sys/kernel/unprivileged_userns_clone", "0") {
        "sudo sysctl kernel.unprivileged_userns_clone=1"
    } else if has_value("/proc/sys/user/max_user_namespaces", "0") {
        "sudo sysctl user.max_user_namespaces=15000"
    } else {
        "in a container, start it with `--privileged`, or run the daemon on the host itself"
    }
}

/// Connects a prewarmed box to the network and removes it again.
async fn network(backend: &NativeBackend) -> Finding {
    let outcome = match Prewarmed::make(backend, BoxUser::Box).await {
        Ok(prewarmed) => {
            let attached = boxwood_local::attach(&backend.host, &prewarmed.resources).await;
            let cleared = prewarmed.resources.clear().await;
            match (attached, cleared) {
                (Ok(_), Ok(())) => Outcome::works(
                    boxwood_local::firewall_warning()
                        .unwrap_or_else(|| "boxes can be given a network of their own".to_owned()),
                ),
                (Err(error), _) => {
                    Outcome::missing(with_causes(&error), error.hint().unwrap_or("see the log"))
                }
                (Ok(_), Err(error)) => Outcome::missing(
                    format!("failed to remove the network: {error}"),
                    "see the log",
                ),
            }
        }
        Err(error) => Outcome::missing(error.to_string(), namespace_fix()),
    };
    Finding {
        name: "network",
        // The network namespace itself exists in any case; this is about outbound access.
        mechanism: None,
        outcome,
        matters: "`network: on` is refused without it",
    }
}
