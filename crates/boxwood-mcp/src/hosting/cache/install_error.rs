//! Extracts the useful end of an installer's output for the error message.

use crate::hosting::logs::tail::tail_of_lines;

const MAX_SHOWN_BYTES: usize = 500;
/// Lines that installers write regardless of the error.
const NOISE: [&str; 9] = [
    "npm http",
    "npm notice",
    "npm warn",
    "npm WARN",
    "npm error A complete log",
    "npm ERR! A complete log",
    "npm error     /",
    "[notice]",
    "WARNING: Running pip as",
];

pub(crate) fn dep_install_error(exit_code: Option<i32>, stderr: &str) -> String {
    let code = exit_code.map_or_else(|| "none".to_owned(), |code| code.to_string());
    let shown = useful_end(stderr);
    let shown = if shown.is_empty() {
        "no output"
    } else {
        &shown
    };
    format!("Dependency install failed (exit code {code}): {shown}")
}

fn useful_end(stderr: &str) -> String {
    let is_useful =
        |line: &&str| !line.trim().is_empty() && !NOISE.iter().any(|noise| line.starts_with(noise));
    let lines: Vec<_> = stderr
        .lines()
        .map(str::trim_end)
        .filter(is_useful)
        .collect();
    tail_of_lines(&lines.join("\n"), MAX_SHOWN_BYTES).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_shown_without_noise() {
        assert_eq!(
            dep_install_error(
                Some(1),
                "npm http fetch GET 404 x\nnpm error code E404\nnpm error 404 Not Found - x\nnpm error A complete log of this run can be found in: /y\n\n",
            ),
            "Dependency install failed (exit code 1): npm error code E404\nnpm error 404 Not Found - x"
        );
        assert_eq!(
            dep_install_error(None, ""),
            "Dependency install failed (exit code none): no output"
        );
    }

    #[test]
    fn the_message_is_bounded() {
        for stderr in [
            "x".repeat(10_000),
            "line of text\n".repeat(1000),
            "é".repeat(2000),
        ] {
            let shown = useful_end(&stderr);
            assert!(shown.len() <= MAX_SHOWN_BYTES, "{}", shown.len());
            assert!(!shown.is_empty());
            assert!(stderr.trim_end().ends_with(shown.as_str()));
        }
    }
}
