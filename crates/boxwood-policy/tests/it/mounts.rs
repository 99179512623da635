//! What of the host may enter a box, and where.

use boxwood_api::{MountMode, SpecRequest};
use boxwood_policy::{BLOCKED, Denial, Facts, Origin, PolicyRules, admit};

use crate::requests::{extra, mount, opened, request, workspace};

const ALL_ORIGINS: [Origin; 4] = [
    Origin::Operator,
    Origin::Client,
    Origin::LangBotPlatform,
    Origin::Hosting,
];

fn open_to(root: &str) -> PolicyRules {
    PolicyRules {
        allowed_roots: vec![root.into()],
        ..PolicyRules::default()
    }
}

fn refused(request: &SpecRequest, facts: &Facts, origin: Origin, rules: &PolicyRules) -> String {
    admit(request, origin, facts, rules)
        .expect_err("refused")
        .to_string()
}

#[test]
fn clients_mount_nothing_by_default() {
    let (request, facts) = workspace("/srv/a", "/srv/a");
    assert_eq!(
        refused(&request, &facts, Origin::Client, &PolicyRules::default()),
        "host_path mounting is disabled because no allowed_mount_roots are configured"
    );
    let (request, facts) = extra("/srv/a", "/srv/a", "/data", MountMode::Ro);
    assert_eq!(
        refused(&request, &facts, Origin::Client, &PolicyRules::default()),
        "extra_mounts[0].host_path mounting is disabled because no allowed_mount_roots are configured"
    );
}

#[test]
fn an_allowed_root_opens_itself_and_what_is_below() {
    let rules = open_to("/srv/boxes/");
    for path in ["/srv/boxes", "/srv/boxes/a", "/srv//boxes/./a/"] {
        let real = path.replace("//", "/").replace("/./", "/");
        let (request, facts) = workspace(path, real.trim_end_matches('/'));
        let admission = admit(&request, Origin::Client, &facts, &rules).expect(path);
        let mounted = admission.spec.workspace().expect("a workspace");
        assert_eq!(mounted.mount_path(), "/workspace");
        assert_eq!(mounted.mode(), MountMode::Rw);
    }
    for path in ["/srv", "/srv/boxes2", "/srv/boxes/../other", "/home/me"] {
        let real = path.replace("/boxes/..", "");
        let (request, facts) = workspace(path, &real);
        assert_eq!(
            refused(&request, &facts, Origin::Client, &rules),
            "host_path is outside allowed_mount_roots: /srv/boxes/",
            "{path}"
        );
    }
}

#[test]
fn a_symlink_is_judged_by_where_it_leads() {
    let rules = open_to("/srv/boxes");
    let (request, facts) = workspace("/srv/boxes/link", "/home/me");
    assert_eq!(
        refused(&request, &facts, Origin::Client, &rules),
        "host_path is outside allowed_mount_roots: /srv/boxes"
    );
    let (request, facts) = workspace("/srv/boxes/link", "/etc/ssl");
    for origin in ALL_ORIGINS {
        assert_eq!(
            refused(&request, &facts, origin, &rules),
            "host_path /srv/boxes/link is blocked for security"
        );
    }
}

#[test]
fn existence_of_paths_outside_the_roots_is_not_revealed() {
    let rules = open_to("/srv/boxes");
    let spec_request = SpecRequest {
        host_path: Some("/home/secret".to_owned()),
        ..request()
    };
    let absent = refused(&spec_request, &Facts::default(), Origin::Client, &rules);
    let (_, facts) = workspace("/home/secret", "/home/secret");
    let present = refused(&spec_request, &facts, Origin::Client, &rules);
    assert_eq!(absent, present);
    let inside = SpecRequest {
        host_path: Some("/srv/boxes/missing".to_owned()),
        ..request()
    };
    assert_eq!(
        refused(&inside, &Facts::default(), Origin::Client, &rules),
        "host_path must point to an existing directory on the host"
    );
}

#[test]
fn blocked_paths_are_blocked_for_all_and_everywhere() {
    let rules = PolicyRules {
        allowed_roots: vec!["/".into()],
        blocked: vec!["/var/lib/boxwood".into(), "/srv/vault/".into()],
        ..PolicyRules::default()
    };
    let own = [
        "/",
        "/var/lib/boxwood",
        "/var/lib/boxwood/x",
        "/srv",
        "/srv/vault/deep",
        "/var/lib",
    ];
    let docker = [
        "/run/docker.sock",
        "/var/run/docker.sock",
        "/run/podman",
        "/proc/1",
        "/root/x",
    ];
    for path in BLOCKED.iter().chain(&own).chain(&docker) {
        for origin in ALL_ORIGINS {
            let (request, facts) = workspace(path, path);
            assert_eq!(
                refused(&request, &facts, origin, &rules),
                format!("host_path {path} is blocked for security")
            );
            let unmounted = SpecRequest {
                host_path_mode: Some(MountMode::None),
                ..request
            };
            assert_eq!(
                refused(&unmounted, &Facts::default(), origin, &rules),
                format!("host_path {path} is blocked for security")
            );
            for mode in [MountMode::None, MountMode::Ro, MountMode::Rw] {
                let (request, facts) = extra(path, path, "/data", mode);
                assert_eq!(
                    refused(&request, &facts, origin, &rules),
                    format!("extra_mounts[0].host_path {path} is blocked for security")
                );
            }
        }
    }
    for path in [
        "/etcetera",
        "/development",
        "/srv/vaults",
        "/home/me",
        "/opt/x",
    ] {
        let (request, facts) = workspace(path, path);
        admit(&request, Origin::Client, &facts, &rules).expect(path);
    }
}

#[test]
fn what_the_kernel_cannot_name_is_blocked() {
    let (request, facts) = workspace("/srv/a", "anon_inode:[eventfd]");
    assert!(matches!(
        admit(&request, Origin::Operator, &facts, &PolicyRules::default()),
        Err(Denial::Blocked { .. })
    ));
}

#[test]
fn the_platform_keeps_its_own_list_unless_the_operator_caps_it() {
    let (request, facts) = workspace("/srv/a", "/srv/a");
    let mut rules = PolicyRules::default();
    admit(&request, Origin::LangBotPlatform, &facts, &rules).expect("the platform's own list");
    rules.platform_roots = Some(vec!["/tmp".into()]);
    assert_eq!(
        refused(&request, &facts, Origin::LangBotPlatform, &rules),
        "host_path is outside allowed_mount_roots: /tmp"
    );
    rules.platform_roots = Some(Vec::new());
    assert!(matches!(
        admit(&request, Origin::LangBotPlatform, &facts, &rules),
        Err(Denial::MountsDisabled { .. })
    ));
}

#[test]
fn the_facts_must_belong_to_the_request() {
    let (request, _) = workspace("/srv/a", "/srv/a");
    let (_, other) = workspace("/srv/b", "/srv/b");
    assert!(matches!(
        admit(&request, Origin::Operator, &other, &PolicyRules::default()),
        Err(Denial::ForeignFacts { .. })
    ));
}

#[test]
fn a_file_is_no_workspace_but_may_be_mounted() {
    let (request, mut facts) = workspace("/srv/file", "/srv/file");
    if let Some(opened) = &mut facts.host_path {
        opened.is_dir = false;
    }
    assert_eq!(
        refused(&request, &facts, Origin::Operator, &PolicyRules::default()),
        "host_path must point to an existing directory on the host"
    );
    let (request, mut facts) = extra("/srv/file", "/srv/file", "/data/file", MountMode::Ro);
    facts.extra_mounts[0].is_dir = false;
    admit(&request, Origin::Operator, &facts, &PolicyRules::default()).expect("a file");
}

#[test]
fn targets_keep_off_the_boxs_own_system() {
    let check = |target: &str, expected: Result<&str, &str>| {
        let (request, facts) = extra("/srv/a", "/srv/a", target, MountMode::Rw);
        let outcome = admit(&request, Origin::Operator, &facts, &PolicyRules::default())
            .map(|admission| admission.spec.extra_mounts()[0].mount_path().to_owned())
            .map_err(|denial| denial.to_string());
        let expected = expected.map(str::to_owned).map_err(|refused| {
            format!("extra_mounts[0].mount_path must not be `{refused}`: that path is reserved for the system files of the box")
        });
        assert_eq!(outcome, expected, "{target}");
    };
    check("/data", Ok("/data"));
    check(" /data//x/./y/../z/ ", Ok("/data/x/z"));
    check("/workspace/.skills/s1", Ok("/workspace/.skills/s1"));
    check("/tmp/x", Ok("/tmp/x"));
    check("/opt/tool", Ok("/opt/tool"));
    check("/", Err("/"));
    check("/data/..", Err("/"));
    check("/proc", Err("/proc"));
    check("/proc/sys", Err("/proc/sys"));
    check("/.boxwood/boxwood-init", Err("/.boxwood/boxwood-init"));
    check("/data/../etc/passwd", Err("/etc/passwd"));
    check("/usr/bin", Err("/usr/bin"));
    check("/tmp", Err("/tmp"));
    check("/home/box/", Err("/home/box"));
    check("/lib64", Err("/lib64"));
    check("/var/run/x", Err("/var/run/x"));
    check("/var/cache/x", Ok("/var/cache/x"));
    for bad in ["/proc", "/", "/dev/shm"] {
        let request = SpecRequest {
            mount_path: Some(bad.to_owned()),
            ..request()
        };
        assert!(matches!(
            crate::requests::judge(&request),
            Err(Denial::SystemTarget { .. })
        ));
    }
}

#[test]
fn no_two_mounts_share_a_target_or_hide_the_workspace() {
    let rules = PolicyRules::default();
    let two = |first: &str, second: &str, workspace: &str| {
        let request = SpecRequest {
            mount_path: Some(workspace.to_owned()),
            extra_mounts: vec![
                mount("/srv/a", first, MountMode::Ro),
                mount("/srv/b", second, MountMode::Rw),
            ],
            ..request()
        };
        let facts = Facts {
            extra_mounts: vec![opened("/srv/a", "/srv/a"), opened("/srv/b", "/srv/b")],
            ..Facts::default()
        };
        admit(&request, Origin::Operator, &facts, &rules).map_err(|denial| denial.to_string())
    };
    assert_eq!(
        two("/data", "/data/../data/", "/workspace").expect_err("twice"),
        "extra_mounts[1].mount_path `/data` is used by two mounts"
    );
    assert_eq!(
        two("/data", "/workspace", "/workspace").expect_err("on the workspace"),
        "extra_mounts[1].mount_path `/workspace` is used by two mounts"
    );
    assert_eq!(
        two("/data", "/project", "/project/ws").expect_err("above the workspace"),
        "extra_mounts[1].mount_path `/project` would hide the workspace at `/project/ws`"
    );
    let nested = two("/data/inner", "/data", "/workspace").expect("nested");
    let order: Vec<_> = nested
        .spec
        .extra_mounts()
        .iter()
        .map(boxwood_policy::AdmittedMount::mount_path)
        .collect();
    assert_eq!(order, ["/data", "/data/inner"], "outer before inner");
}

#[test]
fn a_locked_mode_holds_for_every_mount() {
    let (request, facts) = extra("/srv/a", "/srv/a", "/data", MountMode::Rw);
    let request = SpecRequest {
        profile: Some("offline_readonly".to_owned()),
        ..request
    };
    let admission =
        admit(&request, Origin::Operator, &facts, &PolicyRules::default()).expect("admitted");
    assert_eq!(admission.spec.extra_mounts()[0].mode(), MountMode::Ro);
    assert_eq!(admission.exec.notices().len(), 1);
}

#[test]
fn a_mount_of_mode_none_is_not_mounted() {
    let (request, facts) = extra("/srv/a", "/srv/a", "/data", MountMode::None);
    let admission = admit(&request, Origin::Client, &facts, &PolicyRules::default())
        .expect("nothing is mounted");
    assert!(admission.spec.extra_mounts().is_empty());
    let (request, _) = workspace("/srv/a", "/srv/a");
    let request = SpecRequest {
        host_path_mode: Some(MountMode::None),
        workdir: Some("/anywhere".to_owned()),
        ..request
    };
    let admission = admit(
        &request,
        Origin::Client,
        &Facts::default(),
        &PolicyRules::default(),
    )
    .expect("nothing is mounted");
    assert!(admission.spec.workspace().is_none());
    assert_eq!(admission.spec.host_path(), Some("/srv/a"));
}

#[test]
fn the_workdir_stays_under_a_mounted_workspace() {
    let check = |workdir: Option<&str>, mount_path: Option<&str>, expected: Option<&str>| {
        let (request, facts) = workspace("/srv/a", "/srv/a");
        let request = SpecRequest {
            workdir: workdir.map(str::to_owned),
            mount_path: mount_path.map(str::to_owned),
            ..request
        };
        let outcome = admit(&request, Origin::Operator, &facts, &PolicyRules::default());
        match expected {
            Some(expected) => assert_eq!(
                {
                    let admission = outcome.expect("admitted");
                    admission.exec.workdir(&admission.spec).to_owned()
                },
                expected
            ),
            None => assert_eq!(
                outcome.expect_err("outside").to_string(),
                "workdir must stay under mount_path when host_path is provided"
            ),
        }
    };
    check(None, None, Some("/workspace"));
    check(Some("/workspace"), None, Some("/workspace"));
    check(Some("/workspace/a/../b/"), None, Some("/workspace/b"));
    check(None, Some("/project"), Some("/project"));
    check(Some(""), Some("/project/"), Some("/project"));
    check(Some("/tmp"), None, None);
    check(Some("/workspace2"), None, None);
    check(Some("/workspace/../etc"), None, None);
    check(Some("/workspace"), Some("/project"), None);
}
