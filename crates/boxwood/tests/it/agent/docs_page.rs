//! Runs the examples of the documentation for platform authors.
//!
//! Every `sh` block of the page is run, in order, on one fresh daemon. Where a `json` block follows,
//! it is a part of what the block before printed; `…` is anything.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::support::daemon::Daemon;

const PAGE: &str = include_str!("../../../../../docs/agents.md");

/// The fenced blocks of a page: language and text.
fn blocks(page: &str) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    let mut open = false;
    for line in page.lines() {
        match (line.strip_prefix("```"), open) {
            (Some(language), false) => found.push((language.to_owned(), String::new())),
            (Some(_), true) => {}
            (None, true) => {
                let (_, text) = found.last_mut().expect("an open block");
                text.push_str(line);
                text.push('\n');
                continue;
            }
            (None, false) => continue,
        }
        open = !open;
    }
    assert!(!open, "a block does not end");
    found
}

/// Whether `shown` is a part of `got`.
fn is_part(shown: &Value, got: &Value) -> bool {
    match (shown, got) {
        (Value::String(text), _) if text == "…" => !got.is_null(),
        (Value::Object(shown), Value::Object(got)) => shown
            .iter()
            .all(|(name, value)| got.get(name).is_some_and(|got| is_part(value, got))),
        (Value::Array(shown), Value::Array(got)) => {
            shown.len() == got.len()
                && shown
                    .iter()
                    .zip(got)
                    .all(|(one, other)| is_part(one, other))
        }
        _ => shown == got,
    }
}

#[test]
fn every_example_does_what_it_shows() {
    let daemon = Daemon::start();
    let here = tempfile::tempdir().expect("a directory");
    let program = Path::new(env!("CARGO_BIN_EXE_boxwood"));
    let mut path = vec![program.parent().expect("a directory").to_owned()];
    let usual = std::env::var_os("PATH").expect("a PATH");
    path.extend(std::env::split_paths(&usual).collect::<Vec<PathBuf>>());
    let path = std::env::join_paths(path).expect("a PATH");

    let blocks = blocks(PAGE);
    let mut ran = 0;
    for (number, (language, script)) in blocks.iter().enumerate() {
        if language != "sh" {
            continue;
        }
        let output = Command::new("sh")
            .args(["-eu", "-c", script])
            .current_dir(here.path())
            .env("BOXWOOD_URL", daemon.url())
            .env_remove("BOXWOOD_OUTPUT")
            .env_remove("BOXWOOD_TOKEN")
            .env("PATH", &path)
            .output()
            .expect("a shell");
        let stdout = String::from_utf8_lossy(&output.stdout);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{script}\n{stdout}{stderr}");
        ran += 1;
        let Some((_, shown)) = blocks.get(number + 1).filter(|(kind, _)| kind == "json") else {
            continue;
        };
        let shown: Value = serde_json::from_str(shown).expect("JSON on the page");
        let got: Value = serde_json::from_str(&stdout)
            .unwrap_or_else(|error| panic!("{error}: {script}\n{stdout}{stderr}"));
        assert!(
            is_part(&shown, &got),
            "{script}\nshown: {shown}\ngot: {got}"
        );
    }
    assert!(ran >= 10, "{ran} examples");
}

#[test]
fn the_settings_it_shows_are_the_defaults() {
    let blocks = blocks(PAGE);
    let (_, text) = blocks
        .iter()
        .find(|(language, _)| language == "toml")
        .expect("settings");
    let here = tempfile::tempdir().expect("a directory");
    let file = here.path().join("config.toml");
    std::fs::write(&file, text).expect("written");
    let flags = boxwood_server::Flags {
        config: Some(file),
        ..boxwood_server::Flags::default()
    };
    let home = [("HOME".into(), "/home/a".into())];
    let config = boxwood_server::config::load_from(&flags, home, false).expect("fine");
    let home = [("HOME".into(), "/home/a".into())];
    let usual = boxwood_server::config::load_from(&boxwood_server::Flags::default(), home, false);
    assert_eq!(config.agent, usual.expect("fine").agent);
}

#[test]
fn a_part_is_told_from_something_else() {
    let value = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
    let got = value(r#"{"a": 1, "b": {"c": "x", "d": [1, 2]}}"#);
    for part in [r#"{"a": 1}"#, r#"{"b": {"c": "…", "d": [1, 2]}}"#, "{}"] {
        assert!(is_part(&value(part), &got), "{part}");
    }
    for other in [r#"{"a": 2}"#, r#"{"b": {"d": [1]}}"#, r#"{"e": "…"}"#] {
        assert!(!is_part(&value(other), &got), "{other}");
    }
}
