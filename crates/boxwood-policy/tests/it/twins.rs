//! Which box, made ahead of time, is the one that a request asks for.

use boxwood_api::{Mechanism, MountMode, Network, SessionId, SpecRequest};
use boxwood_policy::{AdmittedSpec, Facts, Origin, PolicyRules, Profiles, admit};

use crate::requests::{extra, request, workspace};

fn under(profiles: &str) -> PolicyRules {
    PolicyRules {
        profiles: Profiles::new(&toml::from_str(profiles).expect("TOML"), Some("team"))
            .expect("profiles"),
        ..PolicyRules::default()
    }
}

fn spec_with(request: &SpecRequest, rules: &PolicyRules, facts: &Facts) -> AdmittedSpec {
    admit(request, Origin::Operator, facts, rules)
        .expect("admitted")
        .spec
}

fn spec(change: impl FnOnce(&mut SpecRequest), rules: &PolicyRules) -> AdmittedSpec {
    let mut request = request();
    change(&mut request);
    spec_with(&request, rules, &Facts::default())
}

#[test]
fn a_spec_that_differs_in_its_name_alone_is_a_twin() {
    let rules = PolicyRules::default();
    let ahead = spec(
        |r| r.session_id = SessionId::new("warm-default").ok(),
        &rules,
    );
    let requested = spec(
        |r| {
            r.persistent = Some(true);
            // Named, and what the profile says anyway.
            r.memory_mb = Some(512);
        },
        &rules,
    );
    assert!(ahead.is_twin_of(&requested) && requested.is_twin_of(&ahead));
}

type Change = fn(&mut SpecRequest);

#[test]
fn whatever_makes_another_box_makes_no_twin() {
    let rules = PolicyRules::default();
    let ahead = spec(|_| {}, &rules);
    let changes: [(&str, Change); 11] = [
        ("image", |r| r.image = Some("other".to_owned())),
        ("network", |r| r.network = Some(Network::On)),
        ("mount_path", |r| r.mount_path = Some("/project".to_owned())),
        ("cpus", |r| r.cpus = Some(0.5)),
        ("memory_mb", |r| r.memory_mb = Some(511)),
        ("pids_limit", |r| r.pids_limit = Some(127)),
        ("read_only_rootfs", |r| r.read_only_rootfs = Some(false)),
        ("workspace_quota_mb", |r| r.workspace_quota_mb = Some(7)),
        ("backend", |r| r.backend = Some("other".to_owned())),
        ("require", |r| r.require = vec![Mechanism::Seccomp]),
        ("profile", |r| {
            r.profile = Some("offline_readonly".to_owned());
        }),
    ];
    for (what, change) in changes {
        let requested = spec(change, &rules);
        assert!(!ahead.is_twin_of(&requested), "{what} makes no difference");
        assert!(!requested.is_twin_of(&ahead), "{what} makes no difference");
    }
}

#[test]
fn what_a_profile_alone_can_say_makes_no_twin_either() {
    let ahead = spec(|_| {}, &under("[team]"));
    for profile in ["[team]\ntmp_mb = 65", "[team]\nuser = \"root\""] {
        assert!(
            !ahead.is_twin_of(&spec(|_| {}, &under(profile))),
            "{profile}"
        );
    }
    assert!(ahead.is_twin_of(&spec(|_| {}, &under("[team]\nwarm = 3"))));
}

#[test]
fn a_box_with_something_of_the_host_is_never_made_ahead() {
    let rules = PolicyRules::default();
    let plain = spec(|_| {}, &rules);
    for mode in [MountMode::Rw, MountMode::Ro, MountMode::None] {
        let (mut spec_request, facts) = workspace("/srv/project", "/srv/project");
        spec_request.host_path_mode = Some(mode);
        let mounted = spec_with(&spec_request, &rules, &facts);
        assert!(!mounted.can_be_prewarmed(), "{mode:?}");
        assert!(!plain.is_twin_of(&mounted) && !mounted.is_twin_of(&mounted));
    }
    let (spec_request, facts) = extra("/srv/data", "/srv/data", "/data", MountMode::Ro);
    assert!(!spec_with(&spec_request, &rules, &facts).can_be_prewarmed());
}

#[test]
fn a_profile_has_only_the_warm_boxes_it_asks_for_itself() {
    let profiles =
        "[default]\nwarm = 3\nfreeze_after_sec = 60\n[team]\n[other]\nextends = \"team\"\nwarm = 2";
    let rules = under(profiles);
    let profile = |name: &str| rules.profiles.get(name).expect("a profile").clone();
    assert_eq!(profile("default").warm, 3);
    assert_eq!(profile("team").warm, 0);
    assert_eq!(profile("other").warm, 2);
    // How soon a box is frozen is a setting like any other.
    assert_eq!(profile("other").freeze_after_sec, Some(60));
    let too_many = toml::from_str("[team]\nwarm = 257").expect("TOML");
    let error = Profiles::new(&too_many, None).expect_err("too many");
    assert_eq!(
        error.to_string(),
        "profiles.team: warm must not be more than 256"
    );
}
