//! Tokens, which need no daemon to be made.

use serde_json::Value;

use crate::support::command::{CommandResult, hide, run};

struct State(tempfile::TempDir);

impl State {
    fn token(&self, args: &[&str]) -> CommandResult {
        let directory = self.0.path().to_str().expect("UTF-8");
        let mut all = vec!["token", "--state-dir", directory];
        all.extend(args);
        run(&all)
    }
}

#[test]
fn a_token_is_shown_once_and_kept_as_a_hash() {
    let state = State(tempfile::tempdir().expect("a temporary directory"));
    let token = state.token(&["create", "ci"]).ok();
    let token = token.trim();
    assert!(
        token.len() > 32 && !token.contains(char::is_whitespace),
        "{token:?}"
    );
    let list = state.token(&["ls"]).ok();
    assert!(list.contains("ci") && !list.contains(token), "{list}");
    for entry in std::fs::read_dir(state.0.path()).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_file() {
            let text = std::fs::read_to_string(&path).expect("text");
            assert!(!text.contains(token), "{} has the token", path.display());
        }
    }
    state.token(&["rm", "ci"]).ok();
    assert!(!state.token(&["ls"]).ok().contains("ci"));
}

#[test]
fn names_are_unique_and_known() {
    let state = State(tempfile::tempdir().expect("a temporary directory"));
    state.token(&["create", "ci"]).ok();
    insta::assert_snapshot!(state.token(&["create", "ci"]).all(), @r"
    exit 1
    --- stdout
    --- stderr
    error: a token named `ci` already exists
    hint: remove it first with `boxwood token rm`, or choose another name
    ");
    insta::assert_snapshot!(state.token(&["rm", "other", "ci", "third"]).all(), @r"
    exit 1
    --- stdout
    ci
    --- stderr
    error: no token is named `other`
    hint: `boxwood token ls` shows the names
    error: no token is named `third`
    hint: `boxwood token ls` shows the names
    ");
}

#[test]
fn tokens_are_json_for_programs() {
    let state = State(tempfile::tempdir().expect("a temporary directory"));
    let created = state.token(&["-o", "json", "create", "ci"]).ok();
    let created: Value = serde_json::from_str(&created).expect("JSON");
    assert_eq!(created["name"], "ci");
    assert!(created["token"].is_string());
    let list: Value = serde_json::from_str(&state.token(&["-o", "json", "ls"]).ok()).expect("JSON");
    insta::assert_json_snapshot!(hide(list, &["/0/created_at"]), @r#"
    [
      {
        "created_at": "[hidden]",
        "name": "ci"
      }
    ]
    "#);
}
