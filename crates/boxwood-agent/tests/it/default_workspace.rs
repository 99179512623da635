use boxwood_agent::{AgentSettings, BoxSection};
use serde_json::json;

fn settings(local: &serde_json::Value, base: &std::path::Path) -> AgentSettings {
    let section: BoxSection = serde_json::from_value(json!({"local": local})).unwrap();
    section.settings(base).unwrap()
}

#[test]
fn the_default_workspace_is_made_below_an_allowed_root() {
    let place = tempfile::tempdir().unwrap();
    let settings = settings(&json!({"host_root": "boxes"}), place.path());
    settings.prepare_default_workspace().unwrap();
    assert!(place.path().join("boxes/default").is_dir());
    settings.prepare_default_workspace().unwrap();
}

#[test]
fn a_default_workspace_elsewhere_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let root = place.path().canonicalize().unwrap();
    let message = |local: serde_json::Value| {
        settings(&local, &root)
            .prepare_default_workspace()
            .unwrap_err()
            .to_string()
    };
    let outside = root.join("elsewhere/w");
    assert_eq!(
        message(json!({"default_workspace": outside, "allowed_mount_roots": ["a", "b"]})),
        format!(
            "box.local.default_workspace is outside allowed_mount_roots: {0}/a, {0}/b",
            root.display()
        )
    );
    assert_eq!(
        message(json!({"default_workspace": outside})),
        "box.local.default_workspace cannot be created because no allowed_mount_roots are configured"
    );
    assert!(!root.join("elsewhere").exists());
    std::fs::write(root.join("file"), "").unwrap();
    assert_eq!(
        message(json!({"default_workspace": root.join("file")})),
        "box.local.default_workspace must point to a directory on the host"
    );
}

#[test]
fn no_default_workspace_needs_nothing() {
    AgentSettings::default()
        .prepare_default_workspace()
        .unwrap();
}
