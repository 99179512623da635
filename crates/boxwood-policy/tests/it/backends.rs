//! Who may say what runs a box.

use boxwood_api::SpecRequest;
use boxwood_policy::{Admission, Facts, Origin, PolicyRules, Profiles, SpecField, admit};

use crate::requests::request;

fn rules(profiles: &str) -> PolicyRules {
    let tables = toml::from_str(profiles).expect("TOML");
    PolicyRules {
        profiles: Profiles::new(&tables, Some("team")).expect("profiles"),
        ..PolicyRules::default()
    }
}

fn judge(backend: Option<&str>, origin: Origin, rules: &PolicyRules) -> Admission {
    let request = SpecRequest {
        backend: backend.map(str::to_owned),
        ..request()
    };
    admit(&request, origin, &Facts::default(), rules).expect("admitted")
}

#[test]
fn a_request_goes_before_its_profile() {
    let rules = rules("[team]\nbackend = ' docker '\n");
    let admission = judge(Some(" podman "), Origin::Client, &rules);
    assert_eq!(admission.spec.backend(), Some("podman"));
    assert!(
        admission
            .spec
            .explicit_fields()
            .contains(&SpecField::Backend)
    );
    for nothing in [None, Some(""), Some("  ")] {
        let bare = judge(nothing, Origin::Client, &rules);
        assert_eq!(bare.spec.backend(), Some("docker"));
        assert!(!bare.spec.explicit_fields().contains(&SpecField::Backend));
        assert!(bare.exec.notices().is_empty());
    }
    let free = judge(None, Origin::Client, &PolicyRules::default());
    assert_eq!(free.spec.backend(), None);
}

#[test]
fn a_locked_backend_comes_from_the_profile() {
    let locked = rules("[team]\nbackend = 'docker'\nlocked = ['backend']\n");
    let admission = judge(Some("nsjail"), Origin::Client, &locked);
    assert_eq!(admission.spec.backend(), Some("docker"));
    assert_eq!(
        admission.exec.notices(),
        ["backend is locked to docker by profile `team`; nsjail was asked for"]
    );
    let same = judge(Some("docker"), Origin::Client, &locked);
    assert!(same.exec.notices().is_empty());

    let daemons = rules("[team]\nlocked = ['backend']\n");
    let admission = judge(Some("nsjail"), Origin::Client, &daemons);
    assert_eq!(admission.spec.backend(), None);
    assert_eq!(admission.exec.notices().len(), 1, "and the caller is told");
}

#[test]
fn the_platform_gets_the_operators_backend_where_it_names_none() {
    let rules = rules("[team]\nbackend = 'docker'\n");
    let platform = judge(None, Origin::LangBotPlatform, &rules);
    assert_eq!(platform.spec.profile(), "platform");
    assert_eq!(platform.spec.backend(), Some("docker"));
    // It never sends the field, so no living session can conflict with it.
    assert!(
        !platform
            .spec
            .explicit_fields()
            .contains(&SpecField::Backend)
    );
    let named = judge(Some("podman"), Origin::LangBotPlatform, &rules);
    assert_eq!(named.spec.backend(), Some("podman"));
}

#[test]
fn a_profile_with_an_empty_backend_is_refused() {
    let tables = toml::from_str("[team]\nbackend = ' '\n").expect("TOML");
    let error = Profiles::new(&tables, None).expect_err("it means nothing");
    assert!(
        error
            .to_string()
            .starts_with("profiles.team: backend must not be empty"),
        "{error}"
    );
}
