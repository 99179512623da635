//! What is really in force in one box: what the kernel says of its init and its groups, not what was
//! asked of the engine.

use boxwood_api::{IsolationLabel, Mechanism};
use boxwood_backend::StartError;
use boxwood_local::{Remains, observed_lacks, own_kernel_lacks};
use boxwood_policy::AdmittedSpec;

use crate::Shared;

pub(crate) fn label(
    shared: &Shared,
    spec: &AdmittedSpec,
    remains: &Remains,
    landlock: bool,
) -> Result<IsolationLabel, StartError> {
    let engine = shared.settings.engine.name();
    let mut lacks = observed_lacks(remains.init).map_err(|source| StartError::Step {
        step: "see what is in force".to_owned(),
        source,
    })?;
    let unenforced = remains
        .group
        .as_ref()
        .map(|group| group.unenforced(&spec.limits()))
        .unwrap_or_default();
    for mechanism in unenforced {
        // Processes are counted per uid where no cgroup counts them, if the uid is the box's alone.
        if mechanism != Mechanism::PidsLimit || remains.ids.is_hosts_own() {
            let why = format!("{engine} did not set it; an ordinary user needs delegated cgroups");
            lacks.push((mechanism, why));
        }
    }
    if !spec.read_only_root() {
        let why = "the container's own layer has no bound; with a read-only root there is none";
        lacks.push((Mechanism::DiskQuota, why.to_owned()));
    }
    lacks.extend(own_kernel_lacks(spec, landlock));
    Ok(IsolationLabel {
        runtime: shared.settings.runtime.clone(),
        ..boxwood_local::label(engine, spec, lacks)
    })
}
