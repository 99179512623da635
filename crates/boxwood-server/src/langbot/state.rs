//! What the dialects remember between two requests, for all connections together.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use boxwood_api::BackendInfo;
use boxwood_policy::{Origin, PolicyRules, check_place, normalize};
use boxwood_skills::SkillStore;
use serde_json::{Map, Value};
use tokio::sync::watch;

use super::config::BoxSection;
use super::transfers::Transfers;
use super::{Fault, today};
use crate::config::{Config, LangBotVariables};
use crate::http::App;

/// Between two lines about refused connections.
const REFUSALS_APART: Duration = Duration::from_secs(10);

pub(crate) struct LangBot {
    section: Mutex<BoxSection>,
    /// Whether the backend LangBot asks for counts.
    backend_is_open: bool,
    /// Whether LangBot says where skills are.
    skills_are_movable: bool,
    /// Where its relative paths start.
    root: PathBuf,
    pub(super) transfers: Transfers,
    last_refusal: Mutex<Option<Instant>>,
    /// How many requests are being answered.
    under_way: watch::Sender<usize>,
    pub(crate) today: today::State,
}

impl LangBot {
    pub(crate) fn new(config: &Config) -> Result<Self, today::InstanceError> {
        let max_zip_bytes = usize::try_from(config.skills.limits.max_zip_bytes);
        let variables = LangBotVariables::read();
        let section = BoxSection::new(&variables);
        let root = config.langbot.root.clone();
        let root = root.unwrap_or_else(working_directory);
        Ok(Self {
            today: today::State::new(&variables, &section, &root)?,
            section: Mutex::new(section),
            backend_is_open: !config.backend_chosen,
            skills_are_movable: config.skills.root.is_none(),
            root,
            last_refusal: Mutex::default(),
            under_way: watch::Sender::new(0),
            transfers: Transfers::new(max_zip_bytes.unwrap_or(usize::MAX / 4)),
        })
    }

    /// Counts a request until the guard is dropped.
    pub(super) fn begin_request(&self) -> UnderWay {
        self.under_way.send_modify(|count| *count += 1);
        UnderWay(self.under_way.clone())
    }

    /// Resolves when every request is answered, or the time is over.
    pub(crate) async fn idle(&self, longest: Duration) {
        let mut counted = self.under_way.subscribe();
        let idle = counted.wait_for(|count| *count == 0);
        if tokio::time::timeout(longest, idle).await.is_err() {
            tracing::warn!("LangBot's requests still run after {} s", longest.as_secs());
        }
    }

    /// Leaves a line for the operator whose LangBot stays red. One in a while: anybody can knock.
    pub(crate) fn note_refusal(&self, why: &str) {
        let now = Instant::now();
        let mut last = self
            .last_refusal
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if last.is_some_and(|last| now - last < REFUSALS_APART) {
            return;
        }
        *last = Some(now);
        tracing::warn!(
            why,
            "a LangBot was refused; if it is yours, see `auth.trusted_uids` and `langbot.trusted_peers`"
        );
    }

    /// Applies what the environment said. Nothing in it keeps the daemon from starting.
    pub(crate) async fn begin(&self, app: &App) {
        let begun = match today::begin(app).await {
            Ok(()) => self.configure(Map::new(), app).await,
            fault => fault,
        };
        if let Err(fault) = begun {
            tracing::warn!(%fault, "LangBot's configuration in the environment cannot be used");
        }
    }

    /// Takes LangBot's configuration, whole or in part.
    pub(super) async fn configure(
        &self,
        update: Map<String, Value>,
        app: &App,
    ) -> Result<(), Fault> {
        let skills_root = {
            let mut section = self.section();
            section.merge(update);
            section.skills_root(&self.root)
        };
        match skills_root {
            Some(root) if self.skills_are_movable => {
                move_skills(root, &app.skills, &app.rules).await
            }
            _ => Ok(()),
        }
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    pub(super) fn section(&self) -> std::sync::MutexGuard<'_, BoxSection> {
        self.section.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The backend as the clients see it. What LangBot asked for and we do not have is none, unless
    /// boxes live: those stay where they are.
    pub(super) fn backend(&self, app: &App) -> BackendInfo {
        let status = app.sessions.status();
        if self.is_ours(app) || status.active_sessions > 0 {
            status.backend
        } else {
            BackendInfo {
                name: None,
                available: false,
            }
        }
    }

    pub(super) fn require_backend(&self, app: &App) -> Result<(), Fault> {
        if self.is_ours(app) || app.sessions.status().active_sessions > 0 {
            return Ok(());
        }
        let asked = self.section().backend().to_owned();
        Err(Fault::new(
            "BoxBackendUnavailableError",
            format!(
                "LangBot Box backend unavailable. This Boxwood runs `{}` and LangBot asks for `{asked}`: \
                 set `box.backend` to `local` in LangBot's config.yaml",
                app.backend.name()
            ),
        ))
    }

    fn is_ours(&self, app: &App) -> bool {
        if !self.backend_is_open {
            return true;
        }
        let section = self.section();
        matches!(section.backend(), "" | "local") || section.backend() == app.backend.name()
    }
}

/// A request that is being answered.
pub(super) struct UnderWay(watch::Sender<usize>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

/// Refused where the platform could not mount it either: skills are written by the daemon, with all
/// its rights.
async fn move_skills(root: PathBuf, store: &SkillStore, rules: &PolicyRules) -> Result<(), Fault> {
    if root == store.root() {
        return Ok(());
    }
    let wanted = root.clone();
    let real = tokio::task::spawn_blocking(move || real_path(&wanted))
        .await
        .unwrap_or_else(|_| root.clone());
    let given = root.display().to_string();
    check_place("skills_root", &given, &real, Origin::LangBotPlatform, rules)?;
    tracing::info!(root = %root.display(), "skills are where LangBot keeps them");
    store.set_root(root);
    Ok(())
}

/// With the symlinks of what exists of it resolved, and the steps up of what does not.
pub(super) fn real_path(path: &Path) -> PathBuf {
    for ancestor in path.ancestors() {
        if let Ok(real) = ancestor.canonicalize() {
            let rest = path.strip_prefix(ancestor).unwrap_or(Path::new(""));
            let joined = real.join(rest);
            return normalize(&joined).unwrap_or(joined);
        }
    }
    path.to_owned()
}

fn working_directory() -> PathBuf {
    std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_up_are_taken_from_where_the_path_really_is() {
        let home = tempfile::tempdir().expect("a directory");
        let home = home.path().canonicalize().expect("real");
        std::fs::create_dir_all(home.join("a/b")).expect("directory");
        std::fs::create_dir(home.join("c")).expect("directory");
        std::os::unix::fs::symlink(home.join("a/b"), home.join("c/link")).expect("link");
        for (path, real) in [
            ("c/link", "a/b"),
            ("c/link/none/x", "a/b/none/x"),
            ("c/link/none/../../x", "a/x"),
            ("a/b/none/../../../x", "x"),
            ("c/../a", "a"),
        ] {
            assert_eq!(real_path(&home.join(path)), home.join(real), "{path}");
        }
    }
}
