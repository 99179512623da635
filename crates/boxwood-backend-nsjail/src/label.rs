//! What is really in force in one box.

use std::io;

use boxwood_api::IsolationLabel;
use boxwood_local::{Remains, host_lacks, observed_lacks, own_kernel_lacks};
use boxwood_policy::AdmittedSpec;

use crate::{NAME, Shared};

/// The label of a box that has begun. What nsjail was asked for is believed when the kernel says so.
pub(crate) fn label(
    shared: &Shared,
    spec: &AdmittedSpec,
    remains: &Remains,
    landlock: bool,
) -> io::Result<IsolationLabel> {
    let mut lacks = host_lacks(&shared.host);
    lacks.extend(own_kernel_lacks(spec, landlock));
    lacks.extend(observed_lacks(remains.init)?);
    Ok(boxwood_local::label(NAME, spec, lacks))
}
