//! Directories in which the daemon writes for its clients.

use std::path::{Path, PathBuf};

use boxwood_policy::{Denial, Origin, PolicyRules, check_place};

fn check(given: &str, real: &str, rules: &PolicyRules) -> Result<(), Denial> {
    check_place(
        "host_root",
        given,
        Path::new(real),
        Origin::LangBotPlatform,
        rules,
    )
}

#[test]
fn blocked_places_are_refused_by_either_spelling() {
    let rules = PolicyRules {
        blocked: vec![PathBuf::from("/var/lib/boxwood")],
        ..PolicyRules::default()
    };
    for (given, real) in [
        ("/etc/skills", "/etc/skills"),
        ("/srv/link", "/root/x"),
        ("/proc/self/cwd", "/srv"),
        ("/", "/"),
        ("/var/lib/boxwood", "/var/lib/boxwood"),
        ("/var", "/var"),
        ("/srv", "relative"),
    ] {
        assert!(
            matches!(check(given, real, &rules), Err(Denial::Blocked { .. })),
            "{given}"
        );
    }
    assert_eq!(check("/srv/langbot", "/srv/langbot", &rules), Ok(()));
}

#[test]
fn the_operators_cap_holds_for_the_real_place() {
    let rules = PolicyRules {
        platform_roots: Some(vec![PathBuf::from("/srv/langbot")]),
        ..PolicyRules::default()
    };
    assert_eq!(check("/srv/langbot/a", "/srv/langbot/a", &rules), Ok(()));
    assert!(matches!(
        check("/srv/langbot/link", "/home/x", &rules),
        Err(Denial::OutsideRoots { .. })
    ));
}
