//! The two sides of `cp`: `SESSION:/path` or a path on this machine.

use std::path::PathBuf;
use std::str::FromStr;

use boxwood_api::SessionId;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CopyPath {
    Local(PathBuf),
    InSession { session: SessionId, path: String },
}

impl FromStr for CopyPath {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("a path must not be empty".to_owned());
        }
        // As with `docker cp`, `./a:/b` and `/a:/b` are files of this machine. Otherwise the first `:/` divides, because
        // the session id and the path may contain colons.
        let local = text.starts_with('/') || text.starts_with("./") || text.starts_with("../");
        match text.find(":/").filter(|_| !local) {
            None => Ok(Self::Local(PathBuf::from(text))),
            Some(0) => Err(format!("`{text}` has no session before the colon")),
            Some(separator) => Ok(Self::InSession {
                session: SessionId::new(&text[..separator]).map_err(|error| error.to_string())?,
                path: text[separator + 1..].to_owned(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_local(text: &str) {
        assert_eq!(text.parse(), Ok(CopyPath::Local(text.into())));
    }

    #[track_caller]
    fn check_in_session(text: &str, session: &str, path: &str) {
        let expected = CopyPath::InSession {
            session: SessionId::new(session).unwrap(),
            path: path.to_owned(),
        };
        assert_eq!(text.parse(), Ok(expected));
    }

    #[test]
    fn a_session_is_named_before_the_first_colon_slash() {
        check_in_session("build:/out/a.txt", "build", "/out/a.txt");
        check_in_session("user:7:/x", "user:7", "/x");
        check_in_session("build:/a:/b", "build", "/a:/b");
    }

    #[test]
    fn other_texts_are_local_paths() {
        for text in ["a.txt", "./build:/x", "../a:/b", "/tmp/a:/b", "a:b"] {
            check_local(text);
        }
    }

    #[test]
    fn empty_paths_and_sessions_are_refused() {
        assert!("".parse::<CopyPath>().is_err());
        assert!(":/x".parse::<CopyPath>().is_err());
    }
}
