//! The rules. They take a path and its text and do no I/O, so that each can be tested.

/// Longer files give a warning.
const LONG_FILE_LINES: usize = 500;
/// Longer files are an error.
const TOO_LONG_FILE_LINES: usize = 600;

/// The only crates that may hold `unsafe`.
const UNSAFE_CRATES: [&str; 2] = ["crates/boxwood-sys/", "crates/boxwood-init/"];

/// Allowed to read environment variables: the daemon's configuration, the command, the program inside
/// the box, and code that is not part of the product.
const ENVIRONMENT_READERS: [&str; 7] = [
    "crates/boxwood-server/src/config",
    "crates/boxwood/src/",
    "crates/boxwood-init/src/",
    // `PATH`, to find nsjail.
    "crates/boxwood-backend-nsjail/src/program.rs",
    "crates/boxwood-suites/",
    "crates/boxwood-test-support/",
    "xtask/",
];

/// Allowed to start programs on the host: backends (their tools), the command (the user's editor), and
/// code that is not part of the product. Programs of a caller run in a box.
const PROGRAM_STARTERS: [&str; 7] = [
    "crates/boxwood/src/verbs/skill/edit.rs",
    "crates/boxwood-backend-",
    "crates/boxwood-init/src/",
    "crates/boxwood-local/src/",
    "crates/boxwood-suites/",
    "crates/boxwood-test-support/",
    "xtask/",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Severity {
    Warning,
    Error,
}

/// Manifest, beginnings of dependency names, and the rule.
const FORBIDDEN_DEPENDENCIES: [(&str, &[&str], &str); 4] = [
    (
        "crates/boxwood-api/Cargo.toml",
        &["tokio", "boxwood-"],
        "`boxwood-api` has no async code and depends on no other crate of the workspace",
    ),
    (
        "crates/boxwood-policy/Cargo.toml",
        &["tokio"],
        "`boxwood-policy` has no async code",
    ),
    (
        "crates/boxwood-session/Cargo.toml",
        &["boxwood-backend-", "boxwood-local", "boxwood-init"],
        "`boxwood-session` depends on no backend",
    ),
    (
        "crates/boxwood-mcp/Cargo.toml",
        &["boxwood-session", "boxwood-backend", "boxwood-server"],
        "`boxwood-mcp` uses boxes through its trait `Runtime`",
    ),
];

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) severity: Severity,
    pub(super) path: String,
    pub(super) line: usize,
    pub(super) what: String,
}

pub(super) fn check(path: &str, text: &str, findings: &mut Vec<Finding>) {
    let mut report = |severity, line: usize, what: String| {
        findings.push(Finding {
            severity,
            path: path.to_owned(),
            line,
            what,
        });
    };
    if path == "Cargo.lock" || path == "LICENSE" {
        return;
    }
    for (index, line) in text.lines().enumerate() {
        if let Some(word) = forbidden_word(line) {
            report(
                Severity::Error,
                index + 1,
                format!("`{word}` is specific to one machine"),
            );
        }
    }
    if has_extension(path, "rs") {
        check_rust(path, text, &mut report);
    } else if path.ends_with("/Cargo.toml") {
        check_dependencies(path, text, &mut report);
    }
}

/// Checks the dependencies of the product. Those of tests come after `[dev-dependencies]`.
fn check_dependencies(path: &str, text: &str, report: &mut impl FnMut(Severity, usize, String)) {
    for (manifest, forbidden, why) in FORBIDDEN_DEPENDENCIES {
        if path != manifest {
            continue;
        }
        for (index, line) in text.lines().enumerate() {
            if line.starts_with("[dev-dependencies]") {
                break;
            }
            if forbidden.iter().any(|name| line.starts_with(name)) {
                report(Severity::Error, index + 1, why.into());
            }
        }
    }
}

fn check_rust(path: &str, text: &str, report: &mut impl FnMut(Severity, usize, String)) {
    let lines = text.lines().count();
    if lines > TOO_LONG_FILE_LINES {
        report(
            Severity::Error,
            lines,
            format!("{lines} lines; split files of more than {TOO_LONG_FILE_LINES}"),
        );
    } else if lines > LONG_FILE_LINES {
        report(
            Severity::Warning,
            lines,
            format!("{lines} lines; consider splitting files of more than {LONG_FILE_LINES}"),
        );
    }

    let in_test_tree = path.contains("/tests/") || path.ends_with("/tests.rs");
    if !in_test_tree && !opens_with_module_docs(text) {
        report(Severity::Error, 1, "no module documentation".into());
    }
    if in_test_tree {
        return;
    }

    let may_be_unsafe = UNSAFE_CRATES.iter().any(|prefix| path.starts_with(prefix));
    // `forbid` cannot be overridden in a module, so the compiler checks the rest of the crate.
    if !may_be_unsafe && is_crate_root(path) && !text.contains("#![forbid(unsafe_code)]") {
        report(
            Severity::Error,
            1,
            "the crate root lacks `#![forbid(unsafe_code)]`".into(),
        );
    }

    if path.ends_with("/build.rs") {
        return;
    }
    let restricted = [
        (
            ENVIRONMENT_READERS.as_slice(),
            ["env::var(", "env::var_os("].as_slice(),
            "the environment is read in `boxwood_server::config` and by the command",
        ),
        (
            PROGRAM_STARTERS.as_slice(),
            ["Command::new("].as_slice(),
            "programs are started by a backend, in a box",
        ),
    ];
    for (allowed, calls, why) in restricted {
        if allowed.iter().any(|prefix| path.starts_with(prefix)) {
            continue;
        }
        for (index, line) in text.lines().enumerate() {
            let code = code_of(line);
            // Unit tests are the last item of a file.
            if code.trim_start().starts_with("#[cfg(test)]") {
                break;
            }
            if calls.iter().any(|call| code.contains(call)) {
                report(Severity::Error, index + 1, why.into());
            }
        }
    }
}

fn is_crate_root(path: &str) -> bool {
    path.ends_with("/src/lib.rs") || path.ends_with("/src/main.rs")
}

fn opens_with_module_docs(text: &str) -> bool {
    text.lines()
        .find(|line| !line.trim().is_empty())
        .is_some_and(|line| line.starts_with("//!"))
}

/// The line without its comment. A `//` inside a string cuts too early; a rule may then miss the rest of
/// that line.
fn code_of(line: &str) -> &str {
    line.split("//").next().unwrap_or(line)
}

fn has_extension(path: &str, extension: &str) -> bool {
    path.rsplit_once('.')
        .is_some_and(|(_, end)| end == extension)
}

/// Written in pieces, so that this file is not a finding.
fn forbidden_word(line: &str) -> Option<&'static str> {
    const WORDS: [&str; 6] = [
        concat!("/wo", "rk/main"),
        concat!("/wo", "rk/shared"),
        concat!("../sha", "red"),
        concat!("index.cra", "tes.io"),
        concat!("static.cra", "tes.io"),
        concat!("registry.npm", "js.org"),
    ];
    WORDS.into_iter().find(|word| line.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(path: &str, text: &str) -> Vec<String> {
        let mut findings = Vec::new();
        check(path, text, &mut findings);
        findings
            .into_iter()
            .filter(|finding| finding.severity == Severity::Error)
            .map(|finding| finding.what)
            .collect()
    }

    #[test]
    fn a_plain_module_is_fine() {
        assert_eq!(
            errors("crates/x/src/y.rs", "//! Docs.\nfn f() {}\n"),
            [""; 0]
        );
    }

    #[test]
    fn a_module_without_docs_is_found() {
        assert_eq!(errors("crates/x/src/y.rs", "fn f() {}\n").len(), 1);
    }

    #[test]
    fn a_crate_root_without_forbid_is_found() {
        assert_eq!(errors("crates/x/src/lib.rs", "//! Docs.\n").len(), 1);
        assert_eq!(
            errors("crates/boxwood-sys/src/lib.rs", "//! Docs.\n"),
            [""; 0]
        );
    }

    #[test]
    fn a_machine_path_is_found_in_any_file() {
        let text = concat!("see /wo", "rk/main\n");
        assert_eq!(errors("docs/x.md", text).len(), 1);
    }

    #[test]
    fn reading_the_environment_is_found_where_it_does_not_belong() {
        let text = "//! Docs.\nfn f() { std::env::var(\"X\"); }\n";
        assert_eq!(errors("crates/boxwood-session/src/y.rs", text).len(), 1);
        assert_eq!(
            errors("crates/boxwood/src/main.rs", text).len(),
            1,
            "forbid is missing"
        );
        assert_eq!(errors("crates/boxwood-server/src/config.rs", text), [""; 0]);
        let in_tests = "//! Docs.\n#[cfg(test)]\nmod tests { fn f() { std::env::var(\"X\"); } }\n";
        assert_eq!(errors("crates/boxwood-session/src/y.rs", in_tests), [""; 0]);
    }

    #[test]
    fn starting_a_program_is_found_where_it_does_not_belong() {
        let text = "//! Docs.\nfn f() { Command::new(\"sh\"); }\n";
        assert_eq!(errors("crates/boxwood-session/src/y.rs", text).len(), 1);
        assert_eq!(
            errors("crates/boxwood-backend-native/src/y.rs", text),
            [""; 0]
        );
    }

    #[test]
    fn a_forbidden_dependency_is_found() {
        let manifest = "[dependencies]\nboxwood-local.workspace = true\n";
        let path = "crates/boxwood-session/Cargo.toml";
        assert_eq!(errors(path, manifest).len(), 1);
        assert_eq!(
            errors("crates/boxwood-server/Cargo.toml", manifest),
            [""; 0]
        );
        let of_tests = "[dev-dependencies]\nboxwood-local.workspace = true\n";
        assert_eq!(errors(path, of_tests), [""; 0]);
    }

    #[test]
    fn a_very_long_file_is_found() {
        let text = format!("//! Docs.\n{}", "\n".repeat(TOO_LONG_FILE_LINES));
        assert_eq!(errors("crates/x/src/y.rs", &text).len(), 1);
    }
}
