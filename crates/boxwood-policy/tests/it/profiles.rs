//! The built-in profiles, to the letter, and the operator's own.

use std::collections::BTreeMap;

use boxwood_policy::{BoxUser, Maxima, Profile, ProfileConfig, Profiles};

fn tables(text: &str) -> BTreeMap<String, ProfileConfig> {
    toml::from_str(text).expect("TOML")
}

#[test]
fn the_built_in_profiles_keep_their_values() {
    let lines: Vec<String> = Profile::built_in()
        .iter()
        .map(|profile| {
            let locked: Vec<String> = profile
                .locked
                .iter()
                .map(|field| format!("{field:?}"))
                .collect();
            format!(
                "{} | {} | {} | {} | {} | {} | {} | {} | {:?} | {} | {}",
                profile.name,
                profile.network,
                profile.host_path_mode,
                profile.cpus,
                profile.memory_mb,
                profile.pids_limit,
                profile.read_only_rootfs,
                profile.timeout_sec,
                profile.max.timeout_sec,
                profile.workspace_quota_mb,
                locked.join(" "),
            )
        })
        .collect();
    insta::assert_snapshot!(lines.join("\n"), @r"
    default | off | rw | 1 | 512 | 128 | true | 30 | Some(120) | 0 | 
    offline_readonly | off | ro | 0.5 | 256 | 64 | true | 30 | Some(60) | 0 | Network HostPathMode ReadOnlyRootfs
    network_basic | on | rw | 1 | 512 | 128 | true | 30 | Some(120) | 0 | 
    network_extended | on | rw | 2 | 1024 | 256 | false | 30 | Some(300) | 0 | 
    ");
    for profile in Profile::built_in() {
        let only_timeout = Maxima {
            timeout_sec: profile.max.timeout_sec,
            ..Maxima::default()
        };
        assert_eq!(profile.max, only_timeout);
        assert_eq!(profile.tmp_mb, 64);
        assert_eq!(profile.user, BoxUser::Box);
        assert!(profile.require.is_empty());
    }
}

#[test]
fn a_configured_profile_lists_only_its_differences() {
    let profiles = Profiles::new(
        &tables(
            r#"
            [team]
            extends = "network_extended"
            memory_mb = 2048
            max_memory_mb = 4096
            locked = ["network"]
            tmp_mb = 256

            [nightly]
            extends = "team"
            max_timeout_sec = 3600
            "#,
        ),
        Some("nightly"),
    )
    .expect("profiles");
    let nightly = profiles.default_profile();
    assert_eq!(nightly.name, "nightly");
    assert_eq!(nightly.memory_mb, 2048);
    assert_eq!(nightly.pids_limit, 256, "from network_extended");
    assert_eq!(nightly.max.timeout_sec, Some(3600));
    assert_eq!(nightly.max.memory_mb, Some(4096));
    assert_eq!(nightly.tmp_mb, 256);
    assert_eq!(profiles.iter().count(), 6);
    let info = serde_json::to_value(profiles.infos()).expect("JSON");
    assert_eq!(info[3]["name"], "nightly");
    assert_eq!(info[3]["locked"][0], "network");
}

#[test]
fn a_built_in_profile_can_be_changed() {
    let profiles =
        Profiles::new(&tables("[offline_readonly]\ncpus = 0.25"), None).expect("profiles");
    let changed = profiles.get("offline_readonly").expect("it exists");
    assert_eq!(changed.cpus.to_bits(), 0.25f64.to_bits());
    assert_eq!(changed.memory_mb, 256, "the rest is as it was");
    assert_eq!(changed.locked.len(), 3);
}

#[test]
fn an_invalid_profile_is_an_error_that_names_it() {
    let check = |text: &str, default: Option<&str>, expected: &str| {
        let fault = Profiles::new(&tables(text), default).expect_err(text);
        assert_eq!(fault.to_string(), expected, "{text}");
    };
    check(
        "[a]\nextends = \"b\"",
        None,
        "profiles.a.extends: unknown box profile 'b', available profiles: a, default, network_basic, network_extended, offline_readonly",
    );
    check(
        "[a]\nextends = \"b\"\n[b]\nextends = \"a\"",
        None,
        "profiles.a.extends: `a` extends itself, directly or through other profiles",
    );
    check(
        "[a]\nmemory_mb = 16",
        None,
        "profiles.a: memory_mb must be at least 32",
    );
    check(
        "[a]\ncpus = inf",
        None,
        "profiles.a: cpus must be a finite number",
    );
    check(
        "[a]\ncpus = nan",
        None,
        "profiles.a: cpus must be a finite number",
    );
    check(
        "[a]\nmax_cpus = 0.0",
        None,
        "profiles.a: max_cpus must be greater than 0",
    );
    check(
        "[a]\ntimeout_sec = 200",
        None,
        "profiles.a: timeout_sec must not be more than max_timeout_sec",
    );
    check(
        "[a]\nmax_memory_mb = 256",
        None,
        "profiles.a: memory_mb must not be more than max_memory_mb",
    );
    check(
        "[a]\ntmp_mb = 0",
        None,
        "profiles.a: tmp_mb must be between 1 and 1048576",
    );
    check(
        "[\"a b\"]",
        None,
        "profiles: a profile's name must be one word of letters, digits, `-` and `_`, not `a b`",
    );
    check(
        "",
        Some("gone"),
        "default_profile: unknown box profile 'gone', available profiles: default, network_basic, network_extended, offline_readonly",
    );
    let misspelt: Result<BTreeMap<String, ProfileConfig>, _> = toml::from_str("[a]\nmemory = 1");
    assert!(misspelt.is_err());
}
