//! The policy branch of the configuration file.

use boxwood_policy::{PolicyConfig, PolicyRules};

fn rules(text: &str) -> Result<PolicyRules, String> {
    let config: PolicyConfig = toml::from_str(text).map_err(|fault| fault.message().to_owned())?;
    PolicyRules::new(&config, ["/var/lib/boxwood".into()]).map_err(|fault| fault.to_string())
}

#[test]
fn an_empty_file_is_the_default() {
    let rules = rules("").expect("rules");
    assert_eq!(
        rules.blocked,
        [std::path::PathBuf::from("/var/lib/boxwood")]
    );
    assert_eq!(
        PolicyRules {
            blocked: Vec::new(),
            ..rules
        },
        PolicyRules::default()
    );
}

#[test]
fn every_section_of_the_policy_is_read() {
    let rules = rules(
        r#"
        default_profile = "team"

        [profiles.team]
        extends = "default"

        [mounts]
        allowed_roots = ["/srv/boxes"]
        extra_blocked = ["/srv/boxes/private"]

        [images]
        py = "/srv/images/py"

        [limits]
        max_memory_mb = 2048
        max_timeout_sec = 600

        "#,
    )
    .expect("rules");
    assert_eq!(rules.profiles.default_profile().name, "team");
    assert_eq!(rules.maxima.memory_mb, Some(2048));
    assert_eq!(rules.blocked.len(), 2);
}

#[test]
fn an_invalid_setting_is_named_by_its_key() {
    let check = |text: &str, expected: &str| {
        let fault = rules(text).expect_err(text);
        assert!(fault.contains(expected), "{text}: {fault}");
    };
    check(
        "[mounts]\nallowed_roots = [\"data\"]",
        "mounts.allowed_roots: `data` must be an absolute path",
    );
    check(
        "[images]\npy = \"py\"",
        "images.py: `py` must be an absolute path",
    );
    check(
        "[limits]\nmax_memory_mb = 1",
        "limits.max_memory_mb must be at least 32",
    );
    check("[limits]\nmax_memory = 1", "unknown field `max_memory`");
    check("[network]\nallow = true", "unknown field `allow`");
    check(
        "[profiles.a]\nextends = \"nope\"",
        "profiles.a.extends: unknown box profile 'nope'",
    );
}
