//! What a box is called by its configuration, and whether that has moved on since.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use boxwood_api::{MountMode, SpecRequest};
use boxwood_policy::{AdmittedSpec, Facts, Image, Origin, PolicyRules, Profiles, admit};

use crate::requests::{extra, opened, request};

fn under(profiles: &str) -> PolicyRules {
    PolicyRules {
        profiles: Profiles::new(&toml::from_str(profiles).expect("TOML"), Some("team"))
            .expect("profiles"),
        ..PolicyRules::default()
    }
}

fn spec(request: &SpecRequest, rules: &PolicyRules) -> AdmittedSpec {
    admit(request, Origin::Operator, &Facts::default(), rules)
        .expect("admitted")
        .spec
}

type Change = fn(&mut SpecRequest);

fn changed(change: impl FnOnce(&mut SpecRequest)) -> SpecRequest {
    let mut request = request();
    change(&mut request);
    request
}

#[test]
fn the_hash_is_sixteen_digits_that_stay() {
    let bare = spec(&request(), &PolicyRules::default());
    // Boxes carry it as a label from one version to the next: another value here makes every one of
    // them look changed.
    assert_eq!(bare.config_hash(), "64ef5155d6f8c832");
    assert_eq!(bare.clone().config_hash(), bare.config_hash());
}

#[test]
fn everything_that_makes_a_box_is_in_its_hash() {
    let rules = PolicyRules::default();
    let mut hashes = BTreeSet::from([spec(&request(), &rules).config_hash()]);
    let mut differs = |what: &str, spec: &AdmittedSpec| {
        assert!(hashes.insert(spec.config_hash()), "{what} is not in it");
    };
    let changes: [(&str, Change); 9] = [
        ("image", |r| r.image = Some("other".to_owned())),
        ("network", |r| r.network = Some(boxwood_api::Network::On)),
        ("mount_path", |r| r.mount_path = Some("/project".to_owned())),
        ("cpus", |r| r.cpus = Some(1.5)),
        ("memory_mb", |r| r.memory_mb = Some(513)),
        ("pids_limit", |r| r.pids_limit = Some(129)),
        ("read_only_rootfs", |r| r.read_only_rootfs = Some(false)),
        ("workspace_quota_mb", |r| r.workspace_quota_mb = Some(7)),
        ("backend", |r| r.backend = Some("other".to_owned())),
    ];
    for (what, change) in changes {
        differs(what, &spec(&changed(change), &rules));
    }
    differs("tmp_mb", &spec(&request(), &under("[team]\ntmp_mb = 65\n")));
    differs("user", &spec(&request(), &under("[team]\nuser = 'root'\n")));
    for (path, mode) in [
        ("/srv/a", MountMode::Rw),
        ("/srv/a", MountMode::Ro),
        ("/srv/b", MountMode::Ro),
    ] {
        let spec_request = changed(|r| {
            r.host_path = Some(path.to_owned());
            r.host_path_mode = Some(mode);
        });
        let facts = Facts {
            host_path: Some(opened(path, path)),
            ..Facts::default()
        };
        let admitted = admit(&spec_request, Origin::Operator, &facts, &rules).expect("admitted");
        differs("the workspace", &admitted.spec);
        let (spec_request, facts) = extra(path, path, "/data", mode);
        let admitted = admit(&spec_request, Origin::Operator, &facts, &rules).expect("admitted");
        differs("a mount", &admitted.spec);
    }
}

#[test]
fn what_differs_from_command_to_command_is_not_in_the_hash() {
    let rules = PolicyRules::default();
    let bare = spec(&request(), &rules).config_hash();
    let other = changed(|r| {
        r.session_id = Some(boxwood_api::SessionId::new("another").expect("an id"));
        r.cmd = "true".to_owned();
        r.env = BTreeMap::from([("A".to_owned(), "b".to_owned())]);
        r.timeout_sec = Some(7);
        r.workdir = Some("/tmp".to_owned());
        r.persistent = Some(true);
    });
    assert_eq!(spec(&other, &rules).config_hash(), bare);
    // The platform's mounts come and go while the box lives.
    let (spec_request, facts) = extra("/srv/a", "/srv/a", "/data", MountMode::Ro);
    let platform = |request: &SpecRequest, facts: &Facts| {
        let admitted = admit(request, Origin::LangBotPlatform, facts, &rules);
        admitted.expect("admitted").spec.config_hash()
    };
    assert_eq!(
        platform(&spec_request, &facts),
        platform(&request(), &Facts::default())
    );
}

#[test]
fn a_changed_profile_is_drift_for_fields_that_no_request_set() {
    let check = |before: &str, after: &str, made: &SpecRequest, now: &SpecRequest| {
        let existing = spec(made, &under(&format!("[team]\n{before}")));
        let current = spec(now, &under(&format!("[team]\n{after}")));
        let drift = existing.drifted_from(&current);
        let renewed = existing.brought_up_to_date(&current);
        assert_eq!(renewed.drifted_from(&current), None, "one remake is enough");
        let same = renewed.config_hash() == existing.config_hash();
        assert_eq!(same, drift.is_none(), "{drift:?}");
        drift
    };
    let bare = request();
    let small = changed(|r| r.memory_mb = Some(128));
    assert_eq!(check("", "", &bare, &bare), None);
    for (after, field) in [
        ("memory_mb = 256", "memory_mb"),
        ("cpus = 2.0", "cpus"),
        ("pids_limit = 7", "pids_limit"),
        ("network = 'on'", "network"),
        ("image = 'other'", "image"),
        ("read_only_rootfs = false", "read_only_rootfs"),
        ("workspace_quota_mb = 7", "workspace_quota_mb"),
        ("tmp_mb = 7", "tmp_mb"),
        ("user = 'root'", "user"),
        ("backend = 'docker'", "backend"),
    ] {
        assert_eq!(check("", after, &bare, &bare), Some(field), "{after}");
    }
    // The maker named it, so it was never the profile's; and a timeout makes no other box.
    assert_eq!(check("", "memory_mb = 256", &small, &bare), None);
    assert_eq!(check("", "timeout_sec = 7", &bare, &bare), None);
    // Whatever runs the box is fine.
    assert_eq!(check("", "backend = 'local'", &bare, &bare), None);
    // The living box keeps what its maker named, and takes the rest.
    let existing = spec(&small, &under("[team]\n"));
    let current = spec(&bare, &under("[team]\ncpus = 2.0\nmemory_mb = 256\n"));
    let renewed = existing.brought_up_to_date(&current);
    assert_eq!(renewed.limits().memory_mb, 128);
    assert_eq!(renewed.limits().cpus.to_bits(), 2.0f64.to_bits());
}

#[test]
fn another_profile_says_nothing_about_the_configuration() {
    let rules = under("[team]\nmemory_mb = 256\n");
    let existing = spec(&request(), &rules);
    let other = changed(|r| r.profile = Some("network_extended".to_owned()));
    assert_eq!(existing.drifted_from(&spec(&other, &rules)), None);
}

#[test]
fn a_tightened_mode_reaches_the_workspace() {
    let spec_request = changed(|r| r.host_path = Some("/srv/a".to_owned()));
    let facts = Facts {
        host_path: Some(opened("/srv/a", "/srv/a")),
        ..Facts::default()
    };
    let rules = under("[team]\nhost_path_mode = 'rw'\n");
    let existing = admit(&spec_request, Origin::Operator, &facts, &rules)
        .expect("admitted")
        .spec;
    let mode_after = |mode: &str| {
        let current = spec(
            &request(),
            &under(&format!("[team]\nhost_path_mode = '{mode}'\n")),
        );
        assert_eq!(existing.drifted_from(&current), Some("host_path_mode"));
        let renewed = existing.brought_up_to_date(&current);
        renewed.workspace().map(boxwood_policy::AdmittedMount::mode)
    };
    assert_eq!(mode_after("ro"), Some(MountMode::Ro));
    assert_eq!(mode_after("none"), None);
}

#[test]
fn a_changed_image_directory_is_drift_even_if_the_request_named_the_image() {
    let named = changed(|r| r.image = Some("py".to_owned()));
    let with = |path: &str| PolicyRules {
        images: BTreeMap::from([("py".to_owned(), PathBuf::from(path))]),
        ..PolicyRules::default()
    };
    let existing = spec(&named, &with("/srv/one"));
    let current = spec(&named, &with("/srv/two"));
    assert_eq!(existing.drifted_from(&current), Some("image"));
    let renewed = existing.brought_up_to_date(&current);
    assert!(matches!(renewed.image(), Image::Directory { path, .. } if path.ends_with("two")));
    assert_eq!(
        existing.drifted_from(&spec(&request(), &with("/srv/one"))),
        None
    );
}
