//! Mounts that may join a box that is running: the platform's, and skills by name.

use boxwood_api::{ErrorCode, MountMode, SpecRequest};
use boxwood_policy::{AdmittedSpec, Denial, Facts, Joining, Origin, PolicyRules, SpecField, admit};

use crate::requests::{extra, opened, request, workspace};

fn spec(request: &SpecRequest, origin: Origin, facts: &Facts) -> AdmittedSpec {
    admit(request, origin, facts, &PolicyRules::default())
        .expect("admitted")
        .spec
}

fn skilled(names: &[&str], found: &[&str]) -> (SpecRequest, Facts) {
    let request = SpecRequest {
        skills: names.iter().map(|name| (*name).to_owned()).collect(),
        ..request()
    };
    let facts = Facts {
        skills: found
            .iter()
            .map(|name| opened(name, &format!("/var/lib/boxwood/skills/{name}")))
            .collect(),
        ..Facts::default()
    };
    (request, facts)
}

#[test]
fn only_the_platforms_mounts_join_a_living_box() {
    let (request, facts) = extra("/srv/a", "/srv/a", "/data", MountMode::Rw);
    for (origin, joining) in [
        (Origin::Operator, Joining::AtStart),
        (Origin::LangBotPlatform, Joining::WhileRunning),
    ] {
        let spec = spec(&request, origin, &facts);
        assert_eq!(spec.extra_mounts()[0].joining(), joining, "{origin:?}");
    }
}

#[test]
fn a_skill_is_read_only_below_the_workspace_whatever_the_roots() {
    let (spec_request, facts) = skilled(&["pdf", "web"], &["pdf", "web"]);
    let rules = PolicyRules {
        blocked: vec!["/var/lib/boxwood".into()],
        ..PolicyRules::default()
    };
    let spec_request = SpecRequest {
        mount_path: Some("/project/".to_owned()),
        ..spec_request
    };
    let spec = admit(&spec_request, Origin::Client, &facts, &rules)
        .expect("admitted")
        .spec;
    let mounts: Vec<_> = spec
        .extra_mounts()
        .iter()
        .map(|mount| (mount.mount_path(), mount.mode(), mount.joining()))
        .collect();
    assert_eq!(
        mounts,
        [
            ("/project/.skills/pdf", MountMode::Ro, Joining::WhileRunning),
            ("/project/.skills/web", MountMode::Ro, Joining::WhileRunning),
        ]
    );
    assert!(!spec.explicit_fields().contains(&SpecField::ExtraMounts));
}

#[test]
fn a_skill_that_the_store_does_not_have_is_named() {
    for (names, found, missing) in [
        (&["pdf"][..], &[][..], "pdf"),
        (&["pdf", "web"], &["pdf"], "web"),
    ] {
        let (spec_request, facts) = skilled(names, found);
        let denial = admit(
            &spec_request,
            Origin::Client,
            &facts,
            &PolicyRules::default(),
        )
        .expect_err("not there");
        assert_eq!(denial.to_string(), format!("skill `{missing}` not found"));
        assert_eq!(denial.code(), ErrorCode::NotFound);
        assert!(denial.hint().is_some());
    }
    let (spec_request, mut facts) = skilled(&["pdf"], &["pdf"]);
    facts.skills[0].is_dir = false;
    let denial = admit(
        &spec_request,
        Origin::Client,
        &facts,
        &PolicyRules::default(),
    );
    assert!(matches!(denial, Err(Denial::SkillNotFound { .. })));
}

#[test]
fn one_skills_directory_does_not_serve_another_and_none_comes_twice() {
    let (spec_request, facts) = skilled(&["pdf"], &["web"]);
    let foreign = admit(
        &spec_request,
        Origin::Client,
        &facts,
        &PolicyRules::default(),
    );
    assert!(matches!(foreign, Err(Denial::ForeignFacts { .. })));
    let (spec_request, facts) = skilled(&["pdf", "pdf"], &["pdf", "pdf"]);
    let twice = admit(
        &spec_request,
        Origin::Client,
        &facts,
        &PolicyRules::default(),
    );
    assert_eq!(
        twice.expect_err("twice").to_string(),
        "skills[1] `/workspace/.skills/pdf` is used by two mounts"
    );
}

#[test]
fn skills_join_at_the_workspace_that_is_there() {
    let at = |path: &str| SpecRequest {
        mount_path: Some(path.to_owned()),
        ..request()
    };
    let existing = spec(&at("/project"), Origin::Client, &Facts::default());
    let (spec_request, facts) = skilled(&["pdf"], &["pdf"]);
    let joining = spec(&spec_request, Origin::Client, &facts).joining(&existing);
    assert_eq!(joining.len(), 1);
    assert_eq!(joining[0].mount_path(), "/project/.skills/pdf");
    let whole = existing.with_mounts(joining);
    assert_eq!(whole.mount_path(), "/project");
    assert_eq!(whole.extra_mounts().len(), 1);
    // What may not join is not among them.
    let (spec_request, facts) = extra("/srv/a", "/srv/a", "/data", MountMode::Ro);
    assert!(
        spec(&spec_request, Origin::Operator, &facts)
            .joining(&existing)
            .is_empty()
    );
}

#[test]
fn the_platform_always_means_the_whole_spec() {
    let (spec_request, facts) = extra("/srv/a", "/srv/a", "/data", MountMode::Rw);
    let spec_request = SpecRequest {
        profile: Some("default".to_owned()),
        ..spec_request
    };
    let fields = spec(&spec_request, Origin::LangBotPlatform, &facts)
        .explicit_fields()
        .clone();
    for field in [
        SpecField::Network,
        SpecField::Image,
        SpecField::ImageText,
        SpecField::HostPath,
        SpecField::HostPathMode,
        SpecField::MountPath,
        SpecField::Persistent,
        SpecField::Cpus,
        SpecField::MemoryMb,
        SpecField::PidsLimit,
        SpecField::ReadOnlyRootfs,
        SpecField::WorkspaceQuotaMb,
    ] {
        assert!(fields.contains(&field), "{field:?}");
    }
    for field in [
        SpecField::Profile,
        SpecField::ExtraMounts,
        SpecField::Workdir,
    ] {
        assert!(!fields.contains(&field), "{field:?}");
    }
    // Others are compared only by what they named.
    let named = spec(&spec_request, Origin::Operator, &facts)
        .explicit_fields()
        .clone();
    assert_eq!(
        named.into_iter().collect::<Vec<_>>(),
        [SpecField::ExtraMounts, SpecField::Profile]
    );
}

/// The store at `/var/lib/boxwood/skills`, configured through the link `/opt/store`.
fn with_store() -> PolicyRules {
    PolicyRules {
        blocked: vec![
            "/var/lib/boxwood".into(),
            "/var/lib/boxwood/skills/x/keys".into(),
        ],
        allowed_roots: vec!["/".into()],
        ..PolicyRules::default()
    }
    .with_skills_dir("/opt/store".into(), "/var/lib/boxwood/skills".into())
    .expect("absolute")
}

#[test]
fn the_platform_mounts_what_is_in_the_store_and_nothing_else_of_the_state() {
    let judge = |given: &str, real: &str, origin| {
        let (request, facts) = extra(given, real, "/data", MountMode::Rw);
        admit(&request, origin, &facts, &with_store()).map(drop)
    };
    let own = "/var/lib/boxwood/skills/pdf";
    for given in [own, "/opt/store/pdf"] {
        judge(given, own, Origin::LangBotPlatform).expect(given);
        for origin in [Origin::Client, Origin::Operator] {
            assert!(
                matches!(judge(given, own, origin), Err(Denial::Blocked { .. })),
                "{given} {origin:?}"
            );
        }
    }
    for (given, real) in [
        // The store itself, what lies beside it, and names that only look like it.
        ("/var/lib/boxwood/skills", "/var/lib/boxwood/skills"),
        ("/opt/store", "/var/lib/boxwood/skills"),
        ("/var/lib/boxwood/tokens", "/var/lib/boxwood/tokens"),
        ("/var/lib/boxwood/skills2/a", "/var/lib/boxwood/skills2/a"),
        (
            "/var/lib/boxwood/skills/../tokens",
            "/var/lib/boxwood/tokens",
        ),
        // Links that leave the store.
        (own, "/etc/ssl"),
        (own, "/var/lib/boxwood/tokens"),
        // Blocked places inside the store stay so, with what contains them.
        (
            "/var/lib/boxwood/skills/x/keys/a",
            "/var/lib/boxwood/skills/x/keys/a",
        ),
        ("/var/lib/boxwood/skills/x", "/var/lib/boxwood/skills/x"),
    ] {
        assert!(
            matches!(
                judge(given, real, Origin::LangBotPlatform),
                Err(Denial::Blocked { .. })
            ),
            "{given} -> {real}"
        );
    }
}

#[test]
fn a_cap_on_the_platforms_roots_leaves_it_the_store() {
    let store = with_store();
    for roots in [Vec::new(), vec!["/srv".into()]] {
        let rules = PolicyRules {
            platform_roots: Some(roots),
            ..store.clone()
        };
        let own = "/var/lib/boxwood/skills/pdf";
        let (request, facts) = workspace(own, own);
        admit(&request, Origin::LangBotPlatform, &facts, &rules).expect("a skill");
        let (request, facts) = workspace("/home/me", "/home/me");
        assert!(admit(&request, Origin::LangBotPlatform, &facts, &rules).is_err());
    }
    let relative = PolicyRules::default().with_skills_dir("skills".into(), "/a/skills".into());
    assert_eq!(
        relative.expect_err("relative").to_string(),
        "skills.root: `skills` must be an absolute path"
    );
}
