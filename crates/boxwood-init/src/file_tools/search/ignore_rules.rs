//! Rules of `.gitignore`, `.ignore`, `.rgignore` and `.git/info/exclude`.
//!
//! Each directory adds its rules to those above it. The files are read here and not by the `ignore` crate, because a
//! file of such a name may be a pipe or endless.

use std::io::Read as _;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::{Mode, OFlags};

use crate::file_tools::open::{OPEN_FLAGS, is_file};

/// The rest of a longer file is not read.
const MAX_BYTES: u64 = 256 * 1024;

/// The rules of one directory, on top of those above it.
pub(super) struct Rules {
    above: Chain,
    /// `.ignore` and `.rgignore`, which take precedence.
    own: Option<Gitignore>,
    git: Option<Gitignore>,
    exclude: Option<Gitignore>,
    /// Rules of Git do not apply across the boundary of a repository.
    is_repository: bool,
}

pub(super) type Chain = Option<Arc<Rules>>;

/// The rules that apply in the directory at `path`.
pub(super) fn within(directory: impl AsFd, path: &Path, above: &Chain) -> Chain {
    let directory = directory.as_fd();
    let exists = rustix::fs::accessat(
        directory,
        ".git",
        rustix::fs::Access::EXISTS,
        rustix::fs::AtFlags::empty(),
    );
    let is_repository = exists.is_ok();
    let rules = Rules {
        own: read(directory, path, &[".ignore", ".rgignore"]),
        git: read(directory, path, &[".gitignore"]),
        exclude: is_repository
            .then(|| read(directory, path, &[".git/info/exclude"]))
            .flatten(),
        is_repository,
        above: above.clone(),
    };
    if rules.is_repository || rules.own.is_some() || rules.git.is_some() {
        Some(Arc::new(rules))
    } else {
        above.clone()
    }
}

fn read(directory: impl AsFd, path: &Path, names: &[&str]) -> Option<Gitignore> {
    let mut builder: Option<GitignoreBuilder> = None;
    for name in names {
        let Some(text) = text(&directory, name) else {
            continue;
        };
        let builder = builder.get_or_insert_with(|| GitignoreBuilder::new(path));
        for line in text.trim_start_matches('\u{feff}').lines() {
            // An invalid line is skipped.
            let _ = builder.add_line(None, line);
        }
    }
    let rules = builder?.build().ok()?;
    (!rules.is_empty()).then_some(rules)
}

fn text(directory: impl AsFd, name: &str) -> Option<String> {
    let fd = rustix::fs::openat(
        directory,
        name,
        OPEN_FLAGS | OFlags::NOFOLLOW,
        Mode::empty(),
    )
    .ok()?;
    if !is_file(&rustix::fs::fstat(&fd).ok()?) {
        return None;
    }
    let mut bytes = Vec::new();
    let file = std::fs::File::from(fd);
    file.take(MAX_BYTES).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

impl Rules {
    /// The nearest matching rule decides.
    pub(super) fn leave_out(&self, path: &Path, is_directory: bool) -> bool {
        let (mut own, mut git, mut exclude) = (None, None, None);
        let mut in_repository = true;
        let mut at = Some(self);
        while let Some(rules) = at {
            let decide = |decision: &mut Option<bool>, matcher: &Option<Gitignore>| {
                if let (None, Some(matcher)) = (&decision, matcher) {
                    *decision = match matcher.matched(path, is_directory) {
                        Match::None => None,
                        Match::Ignore(_) => Some(true),
                        Match::Whitelist(_) => Some(false),
                    };
                }
            };
            decide(&mut own, &rules.own);
            if in_repository {
                decide(&mut git, &rules.git);
                decide(&mut exclude, &rules.exclude);
            }
            in_repository &= !rules.is_repository;
            at = rules.above.as_deref();
        }
        own.or(git).or(exclude).unwrap_or(false)
    }
}
