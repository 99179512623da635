//! Checks that a started box has the admitted isolation.

use boxwood_api::{IsolationLabel, Mechanism, Network, NetworkIsolation};

use crate::{AdmittedSpec, Denial};

/// Compares the label with the required mechanisms and the admitted network. A box that fails must
/// be stopped before anything runs in it.
pub fn check_label(spec: &AdmittedSpec, label: &IsolationLabel) -> Result<(), Denial> {
    check_required(spec.require(), label)?;
    let (expected, found) = match (spec.network(), label.network) {
        (_, NetworkIsolation::Off) | (Network::On, NetworkIsolation::Private) => return Ok(()),
        (Network::Off, NetworkIsolation::Private) => ("no network", "a private network"),
        (Network::Off, NetworkIsolation::Host) => ("no network", "the host's network"),
        (Network::On, NetworkIsolation::Host) => ("a private network", "the host's network"),
    };
    Err(Denial::Network { expected, found })
}

/// Reports the first required mechanism that is not in force.
pub fn check_required(required: &[Mechanism], label: &IsolationLabel) -> Result<(), Denial> {
    let Some(&mechanism) = required.iter().find(|&&mechanism| !label.has(mechanism)) else {
        return Ok(());
    };
    let why = label
        .missing
        .iter()
        .find(|missing| missing.mechanism == mechanism)
        .map_or_else(
            || format!("backend `{}` does not have it", label.backend),
            |missing| missing.why.clone(),
        );
    Err(Denial::Missing { mechanism, why })
}
