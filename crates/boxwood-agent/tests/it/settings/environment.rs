use std::path::{Path, PathBuf};

use boxwood_agent::{AgentSettings, BoxSection, Template};
use proptest::prelude::*;
use serde_json::{Value, json};

fn with(section: Value, variables: &[(&str, &str)]) -> BoxSection {
    let section: BoxSection = serde_json::from_value(section).unwrap();
    section.with_environment(
        variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned())),
    )
}

fn settings(variables: &[(&str, &str)]) -> AgentSettings {
    let section = with(json!({}), variables);
    assert!(section.unused_variables().is_empty());
    section.settings(Path::new("/srv")).unwrap()
}

#[test]
fn variables_override_keys_of_every_kind() {
    let found = settings(&[
        ("BOX__ENABLED", "no"),
        ("BOX__BACKEND", "nsjail"),
        ("BOX__RUNTIME__ENDPOINT", "ws://box:5410"),
        ("BOX__LOCAL__HOST_ROOT", "boxes"),
        ("BOX__LOCAL__ALLOWED_MOUNT_ROOTS", "/srv/a,, /srv/b "),
        ("BOX__LOCAL__WORKSPACE_QUOTA_MB", "32"),
        ("BOX__OUTPUT_LIMIT_CHARS", "99"),
        ("BOX__GUIDANCE", "Be brief."),
    ]);
    assert!(!found.enabled);
    assert_eq!(found.backend, "nsjail");
    assert_eq!(found.endpoint.as_deref(), Some("ws://box:5410"));
    assert_eq!(found.host_root, Some(PathBuf::from("/srv/boxes")));
    assert_eq!(
        found.allowed_mount_roots,
        [PathBuf::from("/srv/a"), PathBuf::from("/srv/b")]
    );
    assert_eq!(found.workspace_quota_mb, Some(32));
    assert_eq!(found.output_limit_chars, 99);
    assert_eq!(found.guidance.as_deref(), Some("Be brief."));
}

#[test]
fn a_flag_is_on_only_for_words_that_say_so() {
    for on in ["true", "1", "yes", "on", "TRUE"] {
        assert!(settings(&[("BOX__ENABLED", on)]).enabled, "{on}");
    }
    for off in ["false", "0", "", "maybe", "enabled"] {
        assert!(!settings(&[("BOX__ENABLED", off)]).enabled, "{off}");
    }
}

#[test]
fn the_kind_is_the_one_that_was_written() {
    // A text stays a text, and is then read as one.
    let found = with(json!({"enabled": "yes"}), &[("BOX__ENABLED", "maybe")]);
    assert!(found.settings(Path::new("/")).unwrap().enabled);
    let found = with(
        json!({"output_limit_chars": 5}),
        &[("BOX__OUTPUT_LIMIT_CHARS", "many")],
    );
    assert!(found.settings(Path::new("/")).is_err());
    let found = with(
        json!({"local": {"allowed_mount_roots": "/srv/a"}}),
        &[("BOX__LOCAL__ALLOWED_MOUNT_ROOTS", "/srv/b,/srv/c")],
    );
    assert_eq!(
        found.settings(Path::new("/")).unwrap().allowed_mount_roots,
        [PathBuf::from("/srv/b"), PathBuf::from("/srv/c")]
    );
}

#[test]
fn the_template_forced_by_the_platform_is_used() {
    let found = settings(&[(
        "SYSTEM__LIMITATION__FORCE_BOX_SESSION_ID_TEMPLATE",
        "{global}",
    )]);
    assert_eq!(
        found.forced_template,
        Some(Template::parse("{global}").unwrap())
    );
    // The section's own name for it wins.
    let found = settings(&[
        (
            "SYSTEM__LIMITATION__FORCE_BOX_SESSION_ID_TEMPLATE",
            "{global}",
        ),
        ("BOX__FORCE_SESSION_ID_TEMPLATE", "{query_id}"),
    ]);
    assert_eq!(
        found.forced_template,
        Some(Template::parse("{query_id}").unwrap())
    );
}

#[test]
fn variables_without_a_matching_key_are_ignored_and_reported() {
    let section = with(
        json!({}),
        &[
            ("BOX__LOCAL", "x"),
            ("BOX__LOCAL__HOSTROOT", "x"),
            ("BOX__ENABLED__DEEP", "x"),
            ("BOX__", "x"),
            ("box__enabled", "false"),
            ("Box__ENABLED", "false"),
            ("BOX__enabled", "false"),
            ("BOX_ENABLED", "false"),
            ("BOXWOOD__ENABLED", "false"),
            ("PATH", "/bin"),
        ],
    );
    assert_eq!(
        section.unused_variables(),
        [
            "BOX__",
            "BOX__ENABLED__DEEP",
            "BOX__LOCAL",
            "BOX__LOCAL__HOSTROOT"
        ]
    );
    assert_eq!(
        section.settings(Path::new("/")),
        Ok(AgentSettings::default())
    );
}

proptest! {
    #[test]
    fn no_environment_causes_a_panic(
        variables in proptest::collection::vec(("(BOX__)?[A-Za-z_]{0,20}|BOX__LOCAL__[A-Z_]{0,12}|BOX__ENABLED", ".{0,12}"), 0..8)
    ) {
        let section = BoxSection::default().with_environment(variables);
        // Wrong values are refused, never a panic; foreign variables never matter.
        let _ = section.settings(Path::new("/"));
    }

    #[test]
    fn a_text_arrives_as_it_is(text in "[a-zA-Z0-9/:._-]{1,30}") {
        let found = settings(&[("BOX__BACKEND", &text), ("BOX__RUNTIME__ENDPOINT", &text)]);
        prop_assert_eq!(&found.backend, &text);
        prop_assert_eq!(found.endpoint, Some(text));
    }

    #[test]
    fn the_order_of_the_environment_does_not_matter(
        variables in proptest::collection::btree_map("BOX__(ENABLED|BACKEND|GUIDANCE|LOCAL__IMAGE|FORCE_SESSION_ID_TEMPLATE)|SYSTEM__LIMITATION__FORCE_BOX_SESSION_ID_TEMPLATE", "[a-z]{0,4}", 0..6)
    ) {
        let forwards = BoxSection::default().with_environment(variables.clone());
        let backwards = BoxSection::default().with_environment(variables.into_iter().rev());
        prop_assert!(forwards == backwards);
    }
}
