//! Every command is either planned or refused, and every planned script is valid shell.

use std::process::Command;

use proptest::prelude::*;
use serde_json::json;

use crate::hosting::launch::*;

/// Words with a meaning for launchers, and others.
fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(vec![
            "uvx",
            "uv",
            "run",
            "tool",
            "npx",
            "npm",
            "exec",
            "start",
            "pipx",
            "python3",
            "node",
            "env",
            "cmd",
            "/c",
            "-y",
            "-p",
            "-c",
            "-m",
            "--",
            "-",
            "--from",
            "--with",
            "--with=a,b",
            "--package=a",
            "--directory",
            "/",
            "/tmp",
            "/usr/bin/python3",
            "a@1",
            "@a/b@2",
            "git+https://x/y",
            "server.py",
            "A=b",
            "x[y]@1",
            "@",
            "[",
            "]@",
            "/x/.venv/bin/python",
        ])
        .prop_map(str::to_owned),
        "\\PC{0,12}",
        "[a-z@/.=\\[\\]'\"$`;& -]{0,16}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn every_command_is_planned_or_refused(
        command in word(),
        args in prop::collection::vec(word(), 0..6),
        with in prop::collection::vec(word(), 0..2),
    ) {
        let spec = serde_json::from_value(json!({
            "name": "any", "command": command, "args": args, "with": with,
        }));
        let spec: McpServerSpec = spec.expect("it is well formed");
        match plan(&spec, "") {
            Ok(plan) => {
                if let Some(install) = plan.install {
                    let read = Command::new("/bin/sh")
                        .args(["-n", "-c", &install.script])
                        .output()
                        .expect("there is a shell");
                    prop_assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
                    prop_assert!(!install.script.contains("@CACHE@"));
                    prop_assert_eq!(install.basis.len(), 64);
                }
            }
            Err(error) => prop_assert!(error.to_string().len() < 500, "{error}"),
        }
    }
}
