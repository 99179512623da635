//! Checks that a started box has the admitted isolation.

use boxwood_api::{IsolationLabel, Mechanism, Network, NetworkIsolation};

use crate::{AdmittedSpec, Denial};

/// Compares the label with the required mechanisms and the admitted network. A box that fails must
/// be stopped before anything runs in it.
pub fn check_label(spec: &AdmittedSpec, label: &IsolationLabel) -> Result<(), Denial> {
    check_required(spec.require(), label)?;
    let found = match label.network {
        NetworkIsolation::Off => return Ok(()),
        NetworkIsolation::Private => "a private network",
        NetworkIsolation::Host => "the host's network",
    };
    match (spec.network(), label.network) {
        (Network::Off, _) => Err(Denial::Network {
            wanted: "no network",
            found,
        }),
        (Network::On, NetworkIsolation::Host) => Err(Denial::Network {
            wanted: "a private network",
            found,
        }),
        (Network::On, _) => Ok(()),
    }
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
