//! Defaults, locks, clamps and refusals.

use std::time::Duration;

use boxwood_api::{ErrorCode, Mechanism, MountMode, Network, SpecRequest};
use boxwood_policy::{Facts, Image, Maxima, Origin, PolicyRules, Profiles, SpecField, admit};

use crate::requests::{judge, request};

#[test]
fn a_bare_request_gets_the_default_profile() {
    let admission = judge(&request()).expect("admitted");
    let spec = &admission.spec;
    assert_eq!(spec.profile(), "default");
    assert_eq!(spec.network(), Network::Off);
    assert_eq!(*spec.image(), Image::Default);
    assert_eq!(spec.limits().cpus.to_bits(), 1.0f64.to_bits());
    assert_eq!(spec.limits().memory_mb, 512);
    assert_eq!(spec.limits().pids, 128);
    assert_eq!(spec.limits().tmp_mb, 64);
    assert_eq!(spec.limits().workspace_quota_mb, 0);
    assert!(spec.read_only_root() && !spec.persistent());
    assert!(spec.workspace().is_none() && spec.extra_mounts().is_empty());
    assert_eq!(spec.mount_path(), "/workspace");
    assert_eq!(admission.exec.workdir(&admission.spec), "/workspace");
    assert_eq!(admission.exec.timeout(), Duration::from_secs(30));
    assert!(admission.exec.notices().is_empty());
    assert!(spec.explicit_fields().is_empty());
}

#[test]
fn a_request_without_a_session_is_refused() {
    let denial = judge(&SpecRequest::default()).expect_err("no session");
    assert_eq!(denial.to_string(), "session_id must not be empty");
}

#[test]
fn a_timeout_above_the_limit_is_reduced_with_a_notice() {
    let request = SpecRequest {
        timeout_sec: Some(500),
        ..request()
    };
    let exec = judge(&request).expect("admitted").exec;
    assert_eq!(exec.timeout().as_secs(), 120);
    assert_eq!(
        exec.notices(),
        ["timeout_sec was shortened from 500 to 120, the most that profile `default` allows"]
    );
}

#[test]
fn an_offline_profile_refuses_network() {
    let request = SpecRequest {
        profile: Some("offline_readonly".to_owned()),
        network: Some(Network::On),
        host_path_mode: Some(MountMode::Rw),
        read_only_rootfs: Some(false),
        cpus: Some(4.0),
        ..request()
    };
    let admission = judge(&request).expect("admitted");
    assert_eq!(admission.spec.network(), Network::Off);
    assert_eq!(admission.spec.host_path_mode(), MountMode::Ro);
    assert!(admission.spec.read_only_root());
    assert_eq!(
        admission.spec.limits().cpus.to_bits(),
        4.0f64.to_bits(),
        "cpus is not locked"
    );
    insta::assert_debug_snapshot!(admission.exec.notices(), @r#"
    [
        "network is locked to off by profile `offline_readonly`; on was asked for",
        "read_only_rootfs is locked to true by profile `offline_readonly`; false was asked for",
        "host_path_mode is locked to ro by profile `offline_readonly`; rw was asked for",
    ]
    "#);
}

#[test]
fn a_lock_that_agrees_is_not_mentioned() {
    let request = SpecRequest {
        profile: Some("offline_readonly".to_owned()),
        network: Some(Network::Off),
        ..request()
    };
    let admission = judge(&request).expect("admitted");
    assert!(admission.exec.notices().is_empty());
}

#[test]
fn an_unknown_profile_lists_the_known_ones() {
    let request = SpecRequest {
        profile: Some("huge".to_owned()),
        ..request()
    };
    assert_eq!(
        judge(&request).expect_err("unknown").to_string(),
        "unknown box profile 'huge', available profiles: default, network_basic, network_extended, offline_readonly"
    );
}

fn with_maxima(maxima: Maxima) -> PolicyRules {
    PolicyRules {
        maxima,
        ..PolicyRules::default()
    }
}

#[test]
fn the_operators_maxima_apply_to_every_origin() {
    let rules = with_maxima(Maxima {
        memory_mb: Some(256),
        ..Maxima::default()
    });
    let spec_request = SpecRequest {
        memory_mb: Some(257),
        ..request()
    };
    for origin in [Origin::Operator, Origin::Client, Origin::LangBotPlatform] {
        let denial = admit(&spec_request, origin, &Facts::default(), &rules).expect_err("too much");
        assert_eq!(
            denial.to_string(),
            "memory_mb of 257 is more than 256, the most that the operator allows"
        );
        assert_eq!(denial.code(), ErrorCode::ValidationError);
        assert_eq!(
            denial.hint().as_deref(),
            Some("ask for memory_mb of at most 256")
        );
        // Who asks for nothing gets what there is.
        let bare = admit(&request(), origin, &Facts::default(), &rules).expect("admitted");
        assert_eq!(bare.spec.limits().memory_mb, 256);
    }
}

#[test]
fn no_quota_means_the_largest_one_where_there_is_one() {
    let rules = with_maxima(Maxima {
        workspace_quota_mb: Some(100),
        ..Maxima::default()
    });
    for quota in [None, Some(0)] {
        let request = SpecRequest {
            workspace_quota_mb: quota,
            ..request()
        };
        let admission =
            admit(&request, Origin::Client, &Facts::default(), &rules).expect("admitted");
        assert_eq!(admission.spec.limits().workspace_quota_mb, 100);
    }
}

#[test]
fn an_install_for_a_hosted_server_has_the_time_of_its_start() {
    let tables = toml::from_str("[strict]\nlocked = [\"timeout_sec\"]").expect("TOML");
    let admitted = |origin, profiles: Profiles, most: Option<u64>| {
        let request = SpecRequest {
            timeout_sec: Some(900),
            ..request()
        };
        let rules = PolicyRules {
            profiles,
            maxima: Maxima {
                timeout_sec: most,
                ..Maxima::default()
            },
            ..PolicyRules::default()
        };
        let exec = admit(&request, origin, &Facts::default(), &rules)
            .expect("admitted")
            .exec;
        exec.timeout().as_secs()
    };
    let strict = || Profiles::new(&tables, Some("strict")).expect("profiles");
    let usual = Profiles::default;
    assert_eq!(admitted(Origin::Hosting, usual(), None), 900);
    assert_eq!(admitted(Origin::Hosting, strict(), None), 900);
    assert_eq!(admitted(Origin::Hosting, usual(), Some(600)), 600);
    assert_eq!(admitted(Origin::Client, usual(), None), 120);
    assert_eq!(admitted(Origin::Client, strict(), None), 30);
}

#[test]
fn the_platform_has_applied_its_own_profile() {
    let request = SpecRequest {
        timeout_sec: Some(3600),
        network: Some(Network::On),
        memory_mb: Some(8192),
        ..request()
    };
    let tables = toml::from_str(
        r#"
        [strict]
        locked = ["network", "memory_mb"]
        require = ["seccomp"]
        user = "root"
        "#,
    )
    .expect("TOML");
    let rules = PolicyRules {
        profiles: Profiles::new(&tables, Some("strict")).expect("profiles"),
        ..PolicyRules::default()
    };
    let admission =
        admit(&request, Origin::LangBotPlatform, &Facts::default(), &rules).expect("admitted");
    assert_eq!(admission.exec.timeout().as_secs(), 3600);
    assert_eq!(admission.spec.network(), Network::On);
    assert_eq!(admission.spec.limits().memory_mb, 8192);
    assert_eq!(admission.spec.require(), [Mechanism::Seccomp]);
    assert_eq!(admission.spec.user(), boxwood_policy::BoxUser::Root);
}

#[test]
fn requirements_of_request_and_profile_are_united() {
    let tables =
        toml::from_str("[strict]\nrequire = [\"seccomp\", \"memory_limit\"]").expect("TOML");
    let rules = PolicyRules {
        profiles: Profiles::new(&tables, Some("strict")).expect("profiles"),
        ..PolicyRules::default()
    };
    let request = SpecRequest {
        require: vec![Mechanism::Landlock, Mechanism::Seccomp],
        ..request()
    };
    let admission = admit(&request, Origin::Client, &Facts::default(), &rules).expect("admitted");
    assert_eq!(
        admission.spec.require(),
        [
            Mechanism::MemoryLimit,
            Mechanism::Seccomp,
            Mechanism::Landlock
        ]
    );
}

#[test]
fn images_come_from_the_operator_or_the_engine() {
    let rules = PolicyRules {
        images: [("py".to_owned(), "/srv/images/py".into())].into(),
        ..PolicyRules::default()
    };
    let check = |image: &str, expected: Image| {
        let request = SpecRequest {
            image: Some(image.to_owned()),
            ..request()
        };
        let admission =
            admit(&request, Origin::Client, &Facts::default(), &rules).expect("admitted");
        assert_eq!(*admission.spec.image(), expected, "{image}");
    };
    check("", Image::Default);
    check("  ", Image::Default);
    check("host", Image::Default);
    check("rockchin/langbot-sandbox:latest", Image::Default);
    check("python:3.11-slim", Image::Default);
    check(
        "py",
        Image::Directory {
            name: "py".to_owned(),
            path: "/srv/images/py".into(),
        },
    );
    check("alpine:latest", Image::Named("alpine:latest".to_owned()));
    check("/etc", Image::Named("/etc".to_owned()));
    check("/srv/images/py", Image::Named("/srv/images/py".to_owned()));
}

#[test]
fn what_the_caller_named_is_remembered() {
    let request = SpecRequest {
        network: Some(Network::Off),
        image: Some(" ".to_owned()),
        workdir: Some("/tmp".to_owned()),
        ..request()
    };
    let admission = judge(&request).expect("admitted");
    let explicit_fields: Vec<_> = admission.spec.explicit_fields().iter().copied().collect();
    assert_eq!(explicit_fields, [SpecField::Network, SpecField::Workdir]);
}

#[test]
fn secrets_stay_out_of_debug_output() {
    let request = SpecRequest {
        env: [("TOKEN".to_owned(), "hunter2".to_owned())].into(),
        stdin: Some("hunter2".to_owned()),
        ..request()
    };
    let shown = format!("{:?}", judge(&request).expect("admitted"));
    assert!(
        shown.contains("TOKEN") && !shown.contains("hunter2"),
        "{shown}"
    );
}
