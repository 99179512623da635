//! Valid and invalid image names, and that no valid one can be harmful on a command line.

use proptest::prelude::*;

use crate::ImageName;

const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

#[test]
fn names_of_the_engines_pass() {
    let with_digest = format!("tools@{DIGEST}");
    let with_both = format!("registry.example:5000/a/b:1@{DIGEST}");
    for good in [
        "busybox",
        "busybox:latest",
        "python:3.11-slim",
        "rockchin/langbot-sandbox:latest",
        "docker.io/library/busybox:1.36",
        "localhost/tools",
        "localhost:5000/tools:V1_rc.2",
        "127.0.0.1:5000/tools",
        "[::1]:5000/tools",
        "[2001:db8::1]/tools",
        "Registry.Example/tools",
        "a__b/c--d/e.f_g",
        "x:_",
        with_digest.as_str(),
        with_both.as_str(),
    ] {
        assert_eq!(ImageName::new(good).map(String::from).as_deref(), Ok(good));
    }
}

#[test]
fn everything_else_is_refused() {
    for bad in [
        "",
        " ",
        "-x",
        "--privileged",
        "a b",
        "a\nb",
        "a\0b",
        "bücher",
        "Tools",
        "a/Tools",
        "/a",
        "a/",
        "a//b",
        "../a",
        "a/../b",
        ".",
        ".hidden",
        "a.",
        "a..b",
        "a___b",
        "a-",
        "a:",
        ":1",
        "a:-1",
        "a:.1",
        "a:1:2",
        "a:b/c:d/e",
        "a,b",
        "a=b",
        "a;b",
        "$(a)",
        "a@",
        "a@sha256",
        "a@sha256:xyz",
        "a@sha256:0123",
        "a@@b",
        "host.example:port/a",
        "host.example:99999/a",
        "host.example:+80/a",
        "-host.example/a",
        "host-.example/a",
        "host..example/a",
        "[::1/a",
        "[::1]x/a",
        "[zz]/a",
        "[::1]:5000",
        "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
    ] {
        assert!(ImageName::new(bad).is_err(), "`{bad}` passed");
    }
    assert!(ImageName::new(&"a".repeat(255)).is_ok());
    assert!(ImageName::new(&"a".repeat(256)).is_err());
    assert!(ImageName::new(&format!("a:{}", "t".repeat(128))).is_ok());
    assert!(ImageName::new(&format!("a:{}", "t".repeat(129))).is_err());
}

#[test]
fn a_missing_tag_is_latest() {
    let tagged = |text: &str| String::from(ImageName::new(text).expect(text).tagged());
    assert_eq!(tagged("a"), "a:latest");
    assert_eq!(tagged("host.example:5000/a"), "host.example:5000/a:latest");
    assert_eq!(tagged("a:1"), "a:1");
    assert_eq!(tagged(&format!("a@{DIGEST}")), format!("a@{DIGEST}"));
}

#[test]
fn a_refusal_shows_no_control_characters() {
    let error = ImageName::new("a\u{1b}[31m").expect_err("an escape is no letter");
    assert!(!error.to_string().chars().any(char::is_control), "{error}");
}

/// Text made of the characters of names, so that much of it is almost valid.
fn nearly() -> impl Strategy<Value = String> {
    proptest::string::string_regex("[-a-zA-Z0-9._:/@\\[\\] ,=\n]{0,40}").expect("a pattern")
}

proptest! {
    #[test]
    fn every_valid_image_name_is_safe_on_a_command_line(text in prop_oneof![nearly(), any::<String>()]) {
        let Ok(name) = ImageName::new(&text) else { return Ok(()) };
        let name = name.as_str();
        prop_assert!(name.len() <= 255 && name.is_ascii());
        prop_assert!(name.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '['));
        prop_assert!(!name.contains(|c: char| c.is_whitespace() || c.is_control()));
        prop_assert!(!name.contains(['\\', '"', '\'', '$', '`', ';', '&', '|', ',', '=', '*', '?']));
        prop_assert!(name.split('/').all(|part| !part.is_empty() && part != "." && part != ".."));
        // Parsing the printed name gives the same name.
        let tagged = ImageName::new(name).expect("it passed before").tagged();
        prop_assert_eq!(tagged.tagged(), tagged);
    }

    #[test]
    fn names_put_together_by_the_grammar_pass(
        registry in proptest::option::of("(localhost|[a-z]{1,8}\\.example)(:[1-9][0-9]{1,3})?/"),
        // A dot in the first of several parts would make it a registry.
        path in "[a-z0-9]{1,6}((_|__|-{1,3})[a-z0-9]{1,6}){0,2}(/[a-z0-9]{1,6}(\\.[a-z0-9]{1,6})?){0,2}",
        tag in proptest::option::of(":[A-Za-z0-9_][A-Za-z0-9_.-]{0,20}"),
        digest in proptest::option::of("@sha256:[0-9a-f]{64}"),
    ) {
        let parts = [registry, Some(path), tag, digest];
        let text: String = parts.into_iter().flatten().collect();
        prop_assert_eq!(ImageName::new(&text).map(String::from), Ok(text));
    }
}
