//! Parses package names as launchers accept them.

use crate::hosting::launch::LaunchError;

/// Limit for the text of one package.
const MAX_WORD_BYTES: usize = 1024;

/// Converts a package of `uvx` or `pipx run` to a requirement for pip and uv.
pub(crate) fn requirement(word: &str) -> Result<String, LaunchError> {
    check("pip", word)?;
    let name = python_name(word);
    let tail = &word[name.len()..];
    let (extras, tail) = match tail.find(']') {
        Some(end) if tail.starts_with('[') => tail.split_at(end + 1),
        _ => ("", tail),
    };
    // `name@1.2` is the launchers' syntax, and `name @ git+https://…` is pip's.
    match tail.strip_prefix('@') {
        Some("latest") if !name.is_empty() => Ok(format!("{name}{extras}")),
        Some(version)
            if !name.is_empty() && version.starts_with(|first: char| first.is_ascii_digit()) =>
        {
            Ok(format!("{name}{extras}=={version}"))
        }
        _ => Ok(word.to_owned()),
    }
}

/// The name of a requirement. Empty for URLs and paths.
pub(crate) fn python_name(word: &str) -> &str {
    let end = word
        .find(|letter: char| !(letter.is_ascii_alphanumeric() || "._-".contains(letter)))
        .unwrap_or(word.len());
    let name = &word[..end];
    let is_name = name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && !word[end..].starts_with([':', '/', '+', '\\']);
    if is_name { name } else { "" }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NpmPackage {
    Registry {
        name: String,
        range: String,
    },
    /// A URL, path or repository. The name of the package is known only after the install.
    Address {
        address: String,
    },
}

impl NpmPackage {
    pub(crate) fn read(word: &str) -> Result<Self, LaunchError> {
        check("npm", word)?;
        let version = word
            .char_indices()
            .skip(1)
            .find(|(_, letter)| *letter == '@')
            .map(|(at, _)| at);
        let (name, range) = match version {
            Some(at) => (&word[..at], word.get(at + 1..).unwrap_or_default()),
            None => (word, ""),
        };
        if !is_npm_name(name) {
            return Ok(Self::Address {
                address: word.to_owned(),
            });
        }
        Ok(Self::Registry {
            name: name.to_owned(),
            // As for a name alone in npm: the newest version that supports the installed Node.
            range: if range.is_empty() { "*" } else { range }.to_owned(),
        })
    }

    /// As it was written.
    pub(crate) fn word(&self) -> String {
        match self {
            Self::Registry { name, range } if range == "*" => name.clone(),
            Self::Registry { name, range } => format!("{name}@{range}"),
            Self::Address { address } => address.clone(),
        }
    }
}

fn is_npm_name(name: &str) -> bool {
    let is_part = |part: &str| {
        !part.is_empty()
            && !part.starts_with('.')
            && part
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"._-~".contains(&byte))
    };
    match name.strip_prefix('@') {
        Some(scoped) => scoped
            .split_once('/')
            .is_some_and(|(scope, name)| is_part(scope) && is_part(name)),
        None => is_part(name),
    }
}

/// Returns the word if no installer would take it for an option.
pub(crate) fn plain(word: &str) -> Result<String, LaunchError> {
    check("pip", word).map(|()| word.to_owned())
}

/// Refuses words that an installer would take for an option, and control characters.
fn check(installer: &'static str, word: &str) -> Result<(), LaunchError> {
    let why = if word.trim().is_empty() {
        "it is empty"
    } else if word.starts_with('-') {
        "it starts with a dash"
    } else if word.chars().any(char::is_control) {
        "it contains a control character"
    } else if word.len() > MAX_WORD_BYTES {
        "it is too long"
    } else {
        return Ok(());
    };
    Err(LaunchError::BadPackage {
        installer,
        word: word.to_owned(),
        why,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uvx_packages_become_pip_requirements() {
        for (parsed, expected) in [
            ("mcp-server-time", "mcp-server-time"),
            ("mcp-server-time@latest", "mcp-server-time"),
            ("mcp-server-time@2026.10.19", "mcp-server-time==2026.10.19"),
            ("mcp[cli]@1.2", "mcp[cli]==1.2"),
            ("mcp[cli]", "mcp[cli]"),
            ("mcp<2", "mcp<2"),
            ("mcp>=1.0,<2", "mcp>=1.0,<2"),
            (
                "git+https://example.org/x@main",
                "git+https://example.org/x@main",
            ),
            (
                "tool @ git+https://example.org/x",
                "tool @ git+https://example.org/x",
            ),
            ("/srv/tool", "/srv/tool"),
        ] {
            assert_eq!(requirement(parsed).expect(parsed), expected);
        }
    }

    #[test]
    fn the_name_of_a_requirement_comes_first() {
        for (parsed, expected) in [
            ("mcp-server-time==1", "mcp-server-time"),
            ("mcp[cli]", "mcp"),
            ("mcp<2", "mcp"),
            ("tool @ git+https://example.org/x", "tool"),
            ("git+https://example.org/x", ""),
            ("https://example.org/x.whl", ""),
            ("/srv/tool", ""),
            ("./tool", ""),
        ] {
            assert_eq!(python_name(parsed), expected, "{parsed}");
        }
    }

    #[test]
    fn npm_names_have_a_scope_and_a_range() {
        let registry = |name: &str, range: &str| NpmPackage::Registry {
            name: name.to_owned(),
            range: range.to_owned(),
        };
        for (parsed, expected) in [
            ("tsx", registry("tsx", "*")),
            ("tsx@latest", registry("tsx", "latest")),
            ("@scope/name", registry("@scope/name", "*")),
            ("@scope/name@^1.2", registry("@scope/name", "^1.2")),
            ("alias@npm:tsx@4", registry("alias", "npm:tsx@4")),
        ] {
            assert_eq!(NpmPackage::read(parsed).expect(parsed), expected);
            assert_eq!(expected.word(), parsed);
        }
        for address in [
            "github:user/server",
            "user/server",
            "https://example.org/x.tgz",
            "git+ssh://git@example.org/x",
            "/srv/server",
            "./server",
        ] {
            let read = NpmPackage::read(address).expect(address);
            assert_eq!(read.word(), address);
            assert!(matches!(read, NpmPackage::Address { .. }), "{address}");
        }
    }

    #[test]
    fn options_are_not_accepted_as_packages() {
        for word in [
            "--index-url=http://x",
            "-e",
            "",
            " ",
            "a\nb",
            &"x".repeat(2000),
        ] {
            assert!(requirement(word).is_err(), "{word}");
            assert!(NpmPackage::read(word).is_err(), "{word}");
        }
    }
}
