//! What was admitted is the same after it was written down and read back.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use boxwood_api::{MountMode, MountSpec};
use boxwood_policy::{
    AdmittedSpec, Facts, FileIdentity, OpenedPath, Origin, PolicyRules, RecordError, SpecRecord,
    admit,
};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::properties::{modes, numbers, opened_as, origins, rules};
use crate::requests::{opened, request, workspace};

const SOME: FileIdentity = FileIdentity {
    device_major: 8,
    device_minor: 1,
    inode: u64::MAX,
};

fn written(spec: &AdmittedSpec) -> String {
    let record = spec.record(&|_| Some(SOME));
    serde_json::to_string(&record).expect("it can be written")
}

/// With the very descriptor that every path of these tests has.
fn read_back(text: &str, descriptor: &OpenedPath) -> AdmittedSpec {
    let record: SpecRecord = serde_json::from_str(text).expect("it can be read");
    let reopen = |path: &boxwood_policy::PathRecord| {
        assert_eq!(path.identity, Some(SOME));
        Ok(Arc::clone(&descriptor.handle))
    };
    AdmittedSpec::restored(record, &reopen).expect("it can be restored")
}

/// Every field, the private ones too: the descriptor is the same, so nothing may differ.
fn assert_same(one: &AdmittedSpec, other: &AdmittedSpec) {
    assert_eq!(format!("{one:?}"), format!("{other:?}"));
    assert_eq!(one.limits().cpus.to_bits(), other.limits().cpus.to_bits());
    assert_eq!(one.config_hash(), other.config_hash());
    assert_eq!(one.drifted_from(other), None);
    assert_eq!(other.drifted_from(one), None);
}

proptest! {
    #[test]
    fn a_record_brings_back_what_was_admitted(
        numbers in numbers(),
        mut rules in rules(),
        origin in origins(),
        host in any::<bool>(),
        persistent in proptest::option::of(any::<bool>()),
        mounts in vec((modes(), "/m/[a-c]{1,3}"), 0..4),
        skills in vec("[d-f]{1,3}", 0..3),
    ) {
        let mut request = numbers;
        request.persistent = persistent;
        request.host_path = host.then(|| "/data/work".to_owned());
        let mounts = mounts.into_iter().enumerate();
        request.extra_mounts = mounts
            .map(|(index, (mode, target))| MountSpec {
                host_path: format!("/data/{index}"),
                mount_path: format!("{target}{index}"),
                mode,
            })
            .collect();
        request.skills = skills;
        rules.allowed_roots = vec![PathBuf::from("/data")];
        let descriptor = opened_as("/", "/");
        let mounted = request.extra_mounts.iter().filter(|mount| mount.mode != MountMode::None);
        let facts = Facts {
            host_path: request.host_path.as_deref().map(|given| opened_as(given, given)),
            extra_mounts: mounted
                .map(|mount| opened_as(&mount.host_path, &mount.host_path))
                .collect(),
            skills: request.skills.iter().map(|name| opened_as(name, "/skills/x")).collect(),
            ..Facts::default()
        };
        // Some of them are refused, which is not the matter here.
        if let Ok(admitted) = admit(&request, origin, &facts, &rules) {
            let spec = admitted.spec.on_backend("native");
            let restored = read_back(&written(&spec), &descriptor);
            assert_same(&spec, &restored);
            // And once more: the next daemon writes what it read.
            assert_same(&spec, &read_back(&written(&restored), &descriptor));
        }
    }

    #[test]
    fn every_cpu_limit_is_restored_exactly(bits in any::<u64>()) {
        let cpus = f64::from_bits(bits);
        prop_assume!(cpus.is_finite() && cpus > 0.0);
        let mut request = request();
        request.cpus = Some(cpus);
        let descriptor = opened("/", "/");
        let admitted = admit(&request, Origin::Operator, &Facts::default(), &PolicyRules::default());
        if let Ok(admitted) = admitted {
            assert_same(&admitted.spec, &read_back(&written(&admitted.spec), &descriptor));
        }
    }
}

#[test]
fn a_path_that_is_not_utf8_is_restored_exactly() {
    let (request, mut facts) = workspace("/data/work", "/data/work");
    let odd = OsString::from_vec(b"/data/w\xffrk".to_vec());
    let descriptor = facts.host_path.clone().expect("a workspace");
    facts.host_path = Some(OpenedPath {
        real_path: PathBuf::from(odd),
        ..descriptor.clone()
    });
    let rules = PolicyRules {
        allowed_roots: vec![PathBuf::from("/data")],
        ..PolicyRules::default()
    };
    let admitted = admit(&request, Origin::Operator, &facts, &rules).expect("allowed");
    assert!(admitted.spec.workspace().is_some());
    let restored = read_back(&written(&admitted.spec), &descriptor);
    assert_same(&admitted.spec, &restored);
}

#[test]
fn a_record_of_another_version_is_refused() {
    let admitted = crate::requests::judge(&request()).expect("allowed");
    let mut record: serde_json::Value =
        serde_json::from_str(&written(&admitted.spec)).expect("it is JSON");
    record["version"] = 99.into();
    let record = serde_json::from_value(record).expect("a record");
    let refused = AdmittedSpec::restored(record, &|_| Err(io::ErrorKind::NotFound.into()));
    assert!(matches!(refused, Err(RecordError::Version { found: 99 })));
}

#[test]
fn a_record_keeps_the_owner_of_the_box() {
    let check = |origin, expected| {
        let rules = PolicyRules::default();
        let admitted = admit(&request(), origin, &Facts::default(), &rules).expect("allowed");
        assert_eq!(admitted.spec.is_hosted(), expected, "{origin:?}");
        let text = written(&admitted.spec);
        let restored = read_back(&text, &opened("/", "/"));
        assert_eq!(restored.is_hosted(), expected, "{origin:?}");
        text
    };
    for origin in [Origin::Client, Origin::Operator, Origin::LangBotPlatform] {
        check(origin, false);
    }
    let text = check(Origin::Hosting, true);
    // A record from before there were hosted servers.
    let mut record: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
    let fields = record.as_object_mut().expect("an object");
    fields.remove("owner").expect("written down");
    let restored = read_back(&record.to_string(), &opened("/", "/"));
    assert!(!restored.is_hosted());
}
