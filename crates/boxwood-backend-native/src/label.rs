//! What is really in force in one box.

use boxwood_api::IsolationLabel;
use boxwood_local::{host_lacks, own_kernel_lacks};
use boxwood_policy::AdmittedSpec;

use crate::Shared;

/// The label of a box whose init reported `landlock`.
pub(crate) fn label(shared: &Shared, spec: &AdmittedSpec, landlock: bool) -> IsolationLabel {
    let mut lacks = host_lacks(&shared.host);
    lacks.extend(own_kernel_lacks(spec, landlock));
    boxwood_local::label("native", spec, lacks)
}
