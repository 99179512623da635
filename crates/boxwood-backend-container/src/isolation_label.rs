//! The isolation label of a box, from the kernel's view of its init and cgroups.

use boxwood_api::{IsolationLabel, Mechanism};
use boxwood_backend::{StartError, start_step};
use boxwood_local::{BoxResources, observed_lacks, own_kernel_lacks};
use boxwood_policy::AdmittedSpec;

use crate::Shared;

pub(crate) fn label(
    shared: &Shared,
    spec: &AdmittedSpec,
    resources: &BoxResources,
    landlock: bool,
) -> Result<IsolationLabel, StartError> {
    let engine = shared.settings.engine.name();
    let mut lacks = observed_lacks(resources.init)
        .map_err(start_step("read its namespaces and restrictions"))?;
    let unenforced = resources
        .group
        .as_ref()
        .map(|group| group.unenforced(&spec.limits()))
        .unwrap_or_default();
    for mechanism in unenforced {
        // Without a cgroup processes are limited per uid, if only the box has that uid.
        if mechanism != Mechanism::PidsLimit || resources.ids.is_hosts_own() {
            let why = format!("{engine} did not set it; an ordinary user needs delegated cgroups");
            lacks.push((mechanism, why));
        }
    }
    if !spec.read_only_root() {
        let why = "the writable layer of the container has no size limit; use a read-only root";
        lacks.push((Mechanism::DiskQuota, why.to_owned()));
    }
    lacks.extend(own_kernel_lacks(spec, landlock));
    Ok(IsolationLabel {
        runtime: shared.settings.runtime.clone(),
        ..boxwood_local::label(engine, spec, lacks)
    })
}
