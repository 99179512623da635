//! Which files their owner does not want to be found: `.gitignore`, `.ignore`, `.rgignore` and a
//! repository's own list.
//!
//! Each directory adds its rules to those above it. The files are read here, and not by the library
//! that understands them, because what has such a name may be a pipe, or endless.

use std::io::Read as _;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::{Mode, OFlags};

use super::open::{CALMLY, is_file};

/// Nobody writes more rules than this by hand.
const MOST_BYTES: u64 = 256 * 1024;

/// The rules of one directory, on top of those above it.
pub(super) struct Rules {
    above: Chain,
    /// `.ignore` and `.rgignore`, which overrule the rest.
    own: Option<Gitignore>,
    git: Option<Gitignore>,
    exclude: Option<Gitignore>,
    /// Git's rules end where its repository does.
    is_repository: bool,
}

pub(super) type Chain = Option<Arc<Rules>>;

/// Which names of rules there may be in a directory. Most have none, and need not be asked.
#[derive(Clone, Copy)]
pub(super) struct Signs {
    own: bool,
    git: bool,
    repository: bool,
}

impl Signs {
    pub(super) const NONE: Self = Self {
        own: false,
        git: false,
        repository: false,
    };
    pub(super) const ANY: Self = Self {
        own: true,
        git: true,
        repository: true,
    };

    pub(super) fn see(&mut self, name: &[u8]) {
        match name {
            b".ignore" | b".rgignore" => self.own = true,
            b".gitignore" => self.git = true,
            b".git" => self.repository = true,
            _ => {}
        }
    }
}

/// The rules that hold in the directory at `path`.
pub(super) fn within(directory: impl AsFd, path: &Path, signs: Signs, above: &Chain) -> Chain {
    let directory = directory.as_fd();
    let is_repository = signs.repository
        && rustix::fs::accessat(
            directory,
            ".git",
            rustix::fs::Access::EXISTS,
            rustix::fs::AtFlags::empty(),
        )
        .is_ok();
    let read =
        |is_there: bool, names: &[&str]| is_there.then(|| read(directory, path, names)).flatten();
    let rules = Rules {
        own: read(signs.own, &[".ignore", ".rgignore"]),
        git: read(signs.git, &[".gitignore"]),
        exclude: read(is_repository, &[".git/info/exclude"]),
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
            // A line that means nothing is no rule; the others are.
            let _ = builder.add_line(None, line);
        }
    }
    let rules = builder?.build().ok()?;
    (!rules.is_empty()).then_some(rules)
}

fn text(directory: impl AsFd, name: &str) -> Option<String> {
    let fd = rustix::fs::openat(directory, name, CALMLY | OFlags::NOFOLLOW, Mode::empty()).ok()?;
    if !is_file(&rustix::fs::fstat(&fd).ok()?) {
        return None;
    }
    let mut bytes = Vec::new();
    let file = std::fs::File::from(fd);
    file.take(MOST_BYTES).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

impl Rules {
    /// The nearest rule that says something decides.
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
