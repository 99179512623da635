//! Why an install failed, in few words.
//!
//! Comes in: what an install script wrote to stderr. Goes out: the end of it that tells something. Never
//! here: a guess.

/// What people read of it at most.
const LONGEST: usize = 500;
/// Lines that installers write whatever happens.
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

/// The text of a failed install.
pub(crate) fn dep_install_error(exit_code: Option<i32>, stderr: &str) -> String {
    let code = exit_code.map_or_else(|| "none".to_owned(), |code| code.to_string());
    let told = useful_end(stderr);
    let told = if told.is_empty() {
        "it said nothing"
    } else {
        &told
    };
    format!("Dependency install failed (exit code {code}): {told}")
}

fn useful_end(stderr: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut length = 0;
    for line in stderr.lines().rev() {
        let line = line.trim_end();
        let is_noise = line.trim().is_empty() || NOISE.iter().any(|noise| line.starts_with(noise));
        if is_noise {
            continue;
        }
        let room = LONGEST - length;
        let size = line.chars().count() + 1;
        if size > room {
            // Of a line that is too long its end tells more.
            if kept.is_empty() {
                let skipped = size.saturating_sub(room);
                let at = line.char_indices().nth(skipped).map_or(0, |(at, _)| at);
                kept.push(&line[at..]);
            }
            break;
        }
        length += size;
        kept.push(line);
    }
    kept.reverse();
    kept.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_told_without_the_noise() {
        assert_eq!(
            dep_install_error(
                Some(1),
                "npm http fetch GET 404 x\nnpm error code E404\nnpm error 404 Not Found - x\nnpm error A complete log of this run can be found in: /y\n\n",
            ),
            "Dependency install failed (exit code 1): npm error code E404\nnpm error 404 Not Found - x"
        );
        assert_eq!(
            dep_install_error(None, ""),
            "Dependency install failed (exit code none): it said nothing"
        );
    }

    #[test]
    fn it_is_never_longer_than_people_read() {
        for stderr in [
            "x".repeat(10_000),
            "line of text\n".repeat(1000),
            "é".repeat(2000),
        ] {
            let told = useful_end(&stderr);
            assert!(told.chars().count() <= LONGEST, "{}", told.len());
            assert!(!told.is_empty());
            assert!(stderr.trim_end().ends_with(told.as_str()));
        }
    }
}
