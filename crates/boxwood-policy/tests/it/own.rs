//! Directories of Boxwood's own in the box of a hosted server.

use boxwood_api::{MountMode, SpecRequest};
use boxwood_policy::{
    AdmittedMount, Denial, Facts, Origin, OwnDirectory, PolicyRules, SpecField, admit,
};

use crate::requests::{opened, request, workspace};

const HOME: &str = "/var/lib/boxwood/mcp";

fn rules() -> PolicyRules {
    PolicyRules {
        hosting_dir: Some(HOME.into()),
        blocked: vec!["/var/lib/boxwood".into()],
        allowed_roots: vec!["/srv".into()],
        ..PolicyRules::default()
    }
}

fn own(real: &str, mount_path: &str, mode: MountMode) -> OwnDirectory {
    OwnDirectory {
        source: opened(real, real),
        mount_path: mount_path.to_owned(),
        mode,
    }
}

fn facts(own: Vec<OwnDirectory>) -> Facts {
    Facts {
        own,
        ..Facts::default()
    }
}

fn seen(mount: &AdmittedMount) -> (&str, &str, MountMode) {
    let real = mount.source().real_path.to_str().expect("text");
    (real, mount.mount_path(), mount.mode())
}

#[test]
fn hosting_directories_are_mounted_although_they_are_blocked_for_callers() {
    let (cache, work) = (format!("{HOME}/cache/ab12"), format!("{HOME}/work/time"));
    let path_facts = facts(vec![
        own(&cache, "/opt/mcp", MountMode::Ro),
        own(&work, "/workspace", MountMode::Rw),
    ]);
    let admitted = admit(&request(), Origin::Hosting, &path_facts, &rules()).expect("admitted");
    let mounts: Vec<_> = admitted.spec.extra_mounts().iter().map(seen).collect();
    assert_eq!(mounts, [(cache.as_str(), "/opt/mcp", MountMode::Ro)]);
    let workspace = admitted.spec.workspace().expect("a workspace");
    assert_eq!(
        seen(workspace),
        (work.as_str(), "/workspace", MountMode::Rw)
    );
    assert_eq!(admitted.spec.host_path(), None);
    // A session of that name without them is not what was meant.
    assert!(
        admitted
            .spec
            .explicit_fields()
            .contains(&SpecField::ExtraMounts)
    );
    let bare = admit(&request(), Origin::Hosting, &Facts::default(), &rules()).expect("admitted");
    assert!(
        !bare
            .spec
            .explicit_fields()
            .contains(&SpecField::ExtraMounts)
    );
}

#[test]
fn only_hosting_may_mount_directories_of_boxwood() {
    let path_facts = facts(vec![own(
        &format!("{HOME}/work/a"),
        "/opt/mcp",
        MountMode::Ro,
    )]);
    for origin in [Origin::Operator, Origin::Client, Origin::LangBotPlatform] {
        let denied = admit(&request(), origin, &path_facts, &rules());
        assert!(
            matches!(denied, Err(Denial::ForeignFacts { .. })),
            "{origin:?}"
        );
    }
}

#[test]
fn only_what_lies_in_hostings_directory_is_its_own() {
    for real in [
        HOME,
        "/var/lib/boxwood",
        "/var/lib/boxwood/mcp2/a",
        "/etc",
        "/srv/a",
        "relative",
    ] {
        let path_facts = facts(vec![own(real, "/opt/mcp", MountMode::Ro)]);
        let denied = admit(&request(), Origin::Hosting, &path_facts, &rules());
        assert!(matches!(denied, Err(Denial::ForeignFacts { .. })), "{real}");
    }
    let path_facts = facts(vec![own(&format!("{HOME}/a"), "/opt/mcp", MountMode::Ro)]);
    let nowhere = PolicyRules::default();
    assert!(admit(&request(), Origin::Hosting, &path_facts, &nowhere).is_err());
}

#[test]
fn what_was_asked_for_is_judged_as_a_clients() {
    let (spec_request, path_facts) = workspace("/home/me", "/home/me");
    let denial_text = |origin| {
        admit(&spec_request, origin, &path_facts, &rules())
            .expect_err("refused")
            .to_string()
    };
    assert_eq!(denial_text(Origin::Hosting), denial_text(Origin::Client));
    let (spec_request, path_facts) = workspace("/srv/a", "/srv/a");
    let admitted = admit(&spec_request, Origin::Hosting, &path_facts, &rules()).expect("admitted");
    assert_eq!(admitted.spec.host_path(), Some("/srv/a"));
    let (spec_request, path_facts) =
        workspace(&format!("{HOME}/work/b"), &format!("{HOME}/work/b"));
    let denied = admit(&spec_request, Origin::Hosting, &path_facts, &rules());
    assert!(matches!(denied, Err(Denial::Blocked { .. })));
}

#[test]
fn two_directories_never_share_a_place() {
    let work = || own(&format!("{HOME}/work/a"), "/workspace/", MountMode::Rw);
    let (spec_request, mut path_facts) = workspace("/srv/a", "/srv/a");
    path_facts.own = vec![work()];
    let denied = admit(&spec_request, Origin::Hosting, &path_facts, &rules());
    assert!(matches!(denied, Err(Denial::SameTarget { .. })));
    let twice = || own(&format!("{HOME}/cache/a"), "/opt/mcp", MountMode::Ro);
    let denied = admit(
        &request(),
        Origin::Hosting,
        &facts(vec![twice(), twice()]),
        &rules(),
    );
    assert!(matches!(denied, Err(Denial::SameTarget { .. })));
    let system = facts(vec![own(
        &format!("{HOME}/cache/a"),
        "/usr/lib",
        MountMode::Ro,
    )]);
    let denied = admit(&request(), Origin::Hosting, &system, &rules());
    assert!(matches!(denied, Err(Denial::SystemTarget { .. })));
    let elsewhere = SpecRequest {
        mount_path: Some("/data".to_owned()),
        ..request()
    };
    let admitted = admit(&elsewhere, Origin::Hosting, &facts(vec![work()]), &rules());
    let spec = admitted.expect("admitted").spec;
    assert!(spec.workspace().is_none());
    assert_eq!(spec.extra_mounts()[0].mount_path(), "/workspace");
}
