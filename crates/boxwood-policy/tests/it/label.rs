//! A finished box against its spec.

use boxwood_api::{
    IsolationLabel, Mechanism, MissingMechanism, Network, NetworkIsolation, SpecRequest,
};
use boxwood_policy::{AdmittedSpec, Facts, Origin, PolicyRules, admit, check_label};

use crate::requests::request;

fn spec(network: Network, require: &[Mechanism]) -> AdmittedSpec {
    let request = SpecRequest {
        network: Some(network),
        require: require.to_vec(),
        ..request()
    };
    let rules = PolicyRules::default();
    admit(&request, Origin::Client, &Facts::default(), &rules)
        .expect("admitted")
        .spec
}

fn label(network: NetworkIsolation) -> IsolationLabel {
    IsolationLabel {
        backend: "native".to_owned(),
        runtime: None,
        network,
        in_force: vec![Mechanism::PidNamespace],
        missing: vec![MissingMechanism {
            mechanism: Mechanism::MemoryLimit,
            why: "no cgroup is writable".to_owned(),
        }],
    }
}

fn check(spec: &AdmittedSpec, network: NetworkIsolation, expected: Result<(), &str>) {
    assert_eq!(
        check_label(spec, &label(network)).map_err(|denial| denial.to_string()),
        expected.map_err(str::to_owned)
    );
}

#[test]
fn a_missing_requirement_is_named_with_its_reason() {
    use NetworkIsolation::Off;
    let needs = |mechanism| spec(Network::Off, &[mechanism]);
    check(&needs(Mechanism::PidNamespace), Off, Ok(()));
    check(
        &needs(Mechanism::MemoryLimit),
        Off,
        Err("`memory_limit` is required and not in force: no cgroup is writable"),
    );
    check(
        &needs(Mechanism::KernelBoundary),
        Off,
        Err("`kernel_boundary` is required and not in force: backend `native` does not have it"),
    );
}

#[test]
fn a_box_never_has_more_network_than_was_admitted() {
    use NetworkIsolation::{Host, Off, Private};
    let off = spec(Network::Off, &[]);
    check(&off, Off, Ok(()));
    check(
        &off,
        Private,
        Err("the box must have no network, but has a private network"),
    );
    check(
        &off,
        Host,
        Err("the box must have no network, but has the host's network"),
    );
    let on = spec(Network::On, &[]);
    check(&on, Private, Ok(()));
    check(
        &on,
        Host,
        Err("the box must have a private network, but has the host's network"),
    );
}
