//! Which requests a prewarmed box can serve.

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
fn a_spec_that_differs_only_in_its_session_creates_the_same_box() {
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
    assert!(ahead.creates_same_box_as(&requested) && requested.creates_same_box_as(&ahead));
}

type Change = fn(&mut SpecRequest);

#[test]
fn a_different_setting_creates_a_different_box() {
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
        assert!(
            !ahead.creates_same_box_as(&requested),
            "{what} makes no difference"
        );
        assert!(
            !requested.creates_same_box_as(&ahead),
            "{what} makes no difference"
        );
    }
}

#[test]
fn a_different_profile_setting_creates_a_different_box() {
    let ahead = spec(|_| {}, &under("[team]"));
    for profile in ["[team]\ntmp_mb = 65", "[team]\nuser = \"root\""] {
        assert!(
            !ahead.creates_same_box_as(&spec(|_| {}, &under(profile))),
            "{profile}"
        );
    }
    assert!(ahead.creates_same_box_as(&spec(|_| {}, &under("[team]\nwarm = 3"))));
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
        assert!(!plain.creates_same_box_as(&mounted) && !mounted.creates_same_box_as(&mounted));
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
