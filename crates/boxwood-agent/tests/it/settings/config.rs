use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use boxwood_agent::{AgentSettings, BoxSection, ConfigError};
use serde_json::{Value, json};

fn section(value: Value) -> BoxSection {
    serde_json::from_value(value).unwrap()
}

fn settings(value: Value) -> AgentSettings {
    section(value).settings(Path::new("/srv/app")).unwrap()
}

fn refusal(value: Value) -> ConfigError {
    section(value).settings(Path::new("/srv/app")).unwrap_err()
}

fn local(key: &str, value: Value) -> Value {
    let mut section = json!({"local": {}});
    section["local"][key] = value;
    section
}

#[test]
fn no_section_means_the_defaults() {
    assert_eq!(settings(json!({})), AgentSettings::default());
    let defaults = AgentSettings::default();
    assert!(defaults.enabled);
    assert_eq!(defaults.backend, "local");
    assert_eq!(defaults.profile, "default");
    assert_eq!(defaults.output_limit_chars, 4_000);
    assert_eq!(defaults.tool_timeout_sec, 30);
    // Every box has a private workspace.
    assert_eq!(defaults.host_root, None);
    assert_eq!(defaults.default_workspace, None);
    assert_eq!(BoxSection::default().settings(Path::new("/")), Ok(defaults));
}

#[test]
fn a_section_of_the_platform_is_understood() {
    let found = settings(json!({
        "enabled": true,
        "backend": "docker",
        "runtime": {"endpoint": " ws://box:5410 "},
        "local": {
            "profile": "network_basic",
            "image": "  tools  ",
            "host_root": "./data/box",
            "default_workspace": "",
            "skills_root": "skills",
            "allowed_mount_roots": ["./data/box", "/srv/other"],
            "workspace_quota_mb": null,
        },
        "e2b": {"api_key": "", "api_url": "", "template": ""},
    }));
    assert_eq!(found.backend, "docker");
    assert_eq!(found.endpoint.as_deref(), Some("ws://box:5410"));
    assert_eq!(found.profile, "network_basic");
    assert_eq!(found.image.as_deref(), Some("tools"));
    assert_eq!(found.host_root, Some(PathBuf::from("/srv/app/data/box")));
    assert_eq!(
        found.default_workspace,
        Some(PathBuf::from("/srv/app/data/box/default"))
    );
    assert_eq!(
        found.skills_root,
        Some(PathBuf::from("/srv/app/data/box/skills"))
    );
    assert_eq!(
        found.allowed_mount_roots,
        [
            PathBuf::from("/srv/app/data/box"),
            PathBuf::from("/srv/other")
        ]
    );
    assert_eq!(found.workspace_quota_mb, None);
}

#[test]
fn a_section_in_toml_is_understood() {
    let text = r#"
        enabled = "off"
        output_limit_chars = 100
        force_session_id_template = "{global}"
        guidance = "Be brief."
        [local]
        workspace_quota_mb = "64"
        allowed_mount_roots = "/srv/a, /srv/b,"
    "#;
    let section: BoxSection = toml::from_str(text).unwrap();
    let found = section.settings(Path::new("/")).unwrap();
    assert!(!found.enabled);
    assert_eq!(found.output_limit_chars, 100);
    assert!(found.forced_template.is_some());
    assert_eq!(found.guidance.as_deref(), Some("Be brief."));
    assert_eq!(found.workspace_quota_mb, Some(64));
    assert_eq!(
        found.allowed_mount_roots,
        [PathBuf::from("/srv/a"), PathBuf::from("/srv/b")]
    );
}

#[test]
fn enabled_may_be_a_text() {
    for off in ["false", "0", "no", "off", "", " False ", "OFF"] {
        assert!(!settings(json!({"enabled": off})).enabled, "{off}");
    }
    for on in ["true", "1", "yes", "on", "anything"] {
        assert!(settings(json!({"enabled": on})).enabled, "{on}");
    }
    assert!(settings(json!({"enabled": null})).enabled);
    assert!(!settings(json!({"enabled": false})).enabled);
    assert_eq!(
        refusal(json!({"enabled": 1})).to_string(),
        "box.enabled must be true or false"
    );
}

#[test]
fn the_workspace_and_the_allowed_root_come_from_the_host_root() {
    let found = settings(json!({"local": {"host_root": "/srv/boxes"}}));
    assert_eq!(
        found.default_workspace,
        Some(PathBuf::from("/srv/boxes/default"))
    );
    assert_eq!(found.allowed_mount_roots, [PathBuf::from("/srv/boxes")]);
    let found = settings(
        json!({"local": {"host_root": "/srv/boxes", "default_workspace": "../others/w",
                                          "skills_root": "/srv/skills"}}),
    );
    assert_eq!(
        found.default_workspace,
        Some(PathBuf::from("/srv/others/w"))
    );
    assert_eq!(found.skills_root, Some(PathBuf::from("/srv/skills")));
    let found = settings(json!({"local": {"default_workspace": "/srv/w"}}));
    assert_eq!(found.default_workspace, Some(PathBuf::from("/srv/w")));
    assert!(found.allowed_mount_roots.is_empty());
}

#[test]
fn links_of_this_machine_are_not_followed_for_a_runtime_elsewhere() {
    let home = tempfile::tempdir().unwrap();
    symlink("/somewhere", home.path().join("link")).unwrap();
    let written = home.path().join("link/data");
    let found = |endpoint: &str| {
        let parts = json!({
            "local": {"host_root": written, "allowed_mount_roots": [written]},
            "runtime": {"endpoint": endpoint},
        });
        let found = section(parts).settings(Path::new("/base")).unwrap();
        let root = found.allowed_mount_roots[0].clone();
        [
            found.host_root.unwrap(),
            found.default_workspace.unwrap(),
            root,
        ]
    };
    let there = found("http://10.0.0.7:5410");
    assert_eq!(
        there,
        [written.clone(), written.join("default"), written.clone()]
    );
    for here in ["", "unix:///run/boxwood/boxwood.sock"] {
        assert_eq!(found(here)[0], Path::new("/somewhere/data"), "{here}");
    }
}

#[test]
fn links_in_configured_paths_are_followed() {
    let directory = tempfile::tempdir().unwrap();
    let real = directory.path().canonicalize().unwrap();
    std::fs::create_dir(real.join("there")).unwrap();
    symlink("there", real.join("link")).unwrap();
    symlink(real.join("round"), real.join("round")).unwrap();
    let found = section(local("host_root", json!("link/new/../other")))
        .settings(directory.path())
        .unwrap();
    assert_eq!(found.host_root, Some(real.join("there/other")));
    // A loop leads nowhere and ends.
    let found = section(local("host_root", json!("round/x")))
        .settings(directory.path())
        .unwrap();
    assert_eq!(found.host_root, Some(real.join("round/x")));
}

#[test]
fn a_relative_path_without_a_host_root_is_refused() {
    for key in ["default_workspace", "skills_root"] {
        assert_eq!(
            refusal(local(key, json!("mine"))).to_string(),
            format!(
                "box.local.{key} is relative and box.local.host_root is not set; write an absolute path, or set host_root"
            )
        );
    }
}

#[test]
fn an_unknown_profile_is_refused_with_the_known_ones() {
    assert_eq!(
        refusal(local("profile", json!("nope"))).to_string(),
        "unknown box profile 'nope', available profiles: default, network_basic, network_extended, offline_readonly"
    );
    let mine = section(local("profile", json!("mine")));
    let base = Path::new("/");
    let found = mine
        .settings_with_profiles(base, ["default", "mine"])
        .unwrap();
    assert_eq!(found.profile, "mine");
    assert_eq!(
        mine.settings_with_profiles(base, ["z", "a"])
            .unwrap_err()
            .to_string(),
        "unknown box profile 'mine', available profiles: a, z"
    );
    assert_eq!(settings(local("profile", json!(" "))).profile, "default");
}

#[test]
fn a_runtime_elsewhere_knows_its_profiles_itself() {
    let base = Path::new("/");
    let away = section(json!({
        "local": {"profile": "theirs"}, "runtime": {"endpoint": "http://10.0.0.7"}
    }));
    for found in [
        away.settings(base),
        away.settings_with_profiles(base, ["a"]),
    ] {
        let found = found.expect("its runtime judges");
        assert_eq!(found.profile, "theirs");
        assert_eq!(found.exec_timeout_sec, None, "not known here");
    }
    let beside = section(local("profile", json!("theirs")));
    let found = beside.settings_elsewhere(base).expect("the daemon judges");
    assert_eq!(found.profile, "theirs");
}

#[test]
fn a_quota_is_a_whole_number_however_it_is_written() {
    for (written, expected) in [
        (json!(null), None),
        (json!(""), None),
        (json!(0), Some(0)),
        (json!(64), Some(64)),
        (json!(64.0), Some(64)),
        (json!(" 64 "), Some(64)),
    ] {
        let found = settings(local("workspace_quota_mb", written.clone()));
        assert_eq!(found.workspace_quota_mb, expected, "{written}");
    }
    for written in [
        json!("many"),
        json!(1.5),
        json!([1]),
        json!(true),
        json!("1.5"),
        json!(1e300),
    ] {
        assert_eq!(
            refusal(local("workspace_quota_mb", written)).to_string(),
            "workspace_quota_mb must be an integer greater than or equal to 0"
        );
    }
    for written in [json!(-1), json!("-1")] {
        assert_eq!(
            refusal(local("workspace_quota_mb", written)).to_string(),
            "workspace_quota_mb must be greater than or equal to 0"
        );
    }
}

#[test]
fn the_limit_of_outputs_is_bounded() {
    assert_eq!(
        settings(json!({"output_limit_chars": "0"})).output_limit_chars,
        0
    );
    for written in [json!(-1), json!(1_000_001), json!("x"), json!([])] {
        assert_eq!(
            refusal(json!({"output_limit_chars": written})).to_string(),
            "box.output_limit_chars must be a whole number between 0 and 1000000"
        );
    }
}

#[test]
fn a_blank_forced_template_is_none_and_a_broken_one_ends_the_start() {
    assert_eq!(
        settings(json!({"force_session_id_template": "  "})).forced_template,
        None
    );
    let refusal = refusal(json!({"force_session_id_template": "{launcher_id"}));
    assert_eq!(
        refusal.to_string(),
        "box.force_session_id_template cannot be used"
    );
    let cause = std::error::Error::source(&refusal).unwrap().to_string();
    assert!(
        cause.contains("`{` at character 0 has no closing brace"),
        "{cause}"
    );
}

#[test]
fn unknown_keys_and_mistyped_values_are_named() {
    for (value, expected) in [
        (
            json!({"locl": {}}),
            "box.locl is not a key of the box section; it has ",
        ),
        (
            json!({"local": {"hostroot": ""}}),
            "box.local.hostroot is not a key of the box section; it has ",
        ),
        (json!({"local": 5}), "box.local must be a table"),
        (json!({"backend": 5}), "box.backend must be a string"),
        (
            json!({"e2b": {"api_key": 5}}),
            "box.e2b.api_key must be a string",
        ),
        (
            json!({"local": {"image": "a\u{0}"}}),
            "box.local.image must be a string without NUL characters",
        ),
        (
            json!({"local": {"allowed_mount_roots": [1]}}),
            "box.local.allowed_mount_roots must be a list of paths",
        ),
        (
            json!({"local": {"allowed_mount_roots": 1}}),
            "box.local.allowed_mount_roots must be a list of paths",
        ),
    ] {
        let message = refusal(value).to_string();
        assert!(message.starts_with(expected), "{message}");
    }
    // As an empty table in YAML.
    assert_eq!(settings(json!({"local": null})), AgentSettings::default());
}

#[test]
fn secrets_are_not_shown() {
    let shown = format!("{:?}", section(json!({"e2b": {"api_key": "hush"}})));
    assert!(!shown.contains("hush"), "{shown}");
}
