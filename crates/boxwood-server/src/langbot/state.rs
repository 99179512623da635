//! What the dialects remember between two requests, for all connections together.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use boxwood_api::BackendInfo;
use boxwood_backend::Backend;
use boxwood_policy::{Origin, PolicyRules, check_place, normalize};
use boxwood_session::Choice;
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

/// For a look at the backend that LangBot asks for.
const LOOK: Duration = Duration::from_secs(10);

pub(crate) struct LangBot {
    section: Mutex<BoxSection>,
    /// Whether the backend LangBot asks for counts.
    backend_is_open: bool,
    /// The one that does, as LangBot spelled it.
    chosen: Mutex<String>,
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
            chosen: Mutex::default(),
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
        self.look_for_backend(app).await;
        match skills_root {
            Some(root) if self.skills_are_movable => {
                move_skills(root, &app.skills, &app.rules).await
            }
            _ => Ok(()),
        }
    }

    /// So that whoever asks next hears what is true of the backend that was just asked for.
    async fn look_for_backend(&self, app: &App) {
        if let Some(choice) = self.choice(app) {
            let looking = app.sessions.backends().look_for(&choice);
            if tokio::time::timeout(LOOK, looking).await.is_err() {
                tracing::warn!("looking for LangBot's backend takes long; answering meanwhile");
            }
        }
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    pub(super) fn section(&self) -> std::sync::MutexGuard<'_, BoxSection> {
        self.section.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The backend as the clients see it. One that LangBot named and that does not work is none.
    pub(super) fn backend(&self, app: &App) -> BackendInfo {
        let choice = self.choice(app);
        let info = match &choice {
            None => app.sessions.backends().info(),
            Some(choice) => app.sessions.backends().info_for(choice),
        };
        match choice {
            Some(Choice::Named(_)) if !info.available => BackendInfo {
                name: None,
                available: false,
            },
            _ => info,
        }
    }

    /// What looks at the host on LangBot's behalf.
    pub(super) fn engine(&self, app: &App) -> Option<Arc<dyn Backend>> {
        let backends = app.sessions.backends();
        match self.choice(app) {
            None => backends.current(),
            Some(choice) => backends.current_for(&choice),
        }
    }

    /// What LangBot's boxes are to be run by, in the words of a request; `None` leaves it to the
    /// operator. A name that nobody has is no backend.
    pub(super) fn required_backend(&self, app: &App) -> Result<Option<String>, Fault> {
        let asked = self.chosen(app);
        if let Err(error) = app.sessions.backends().check(&asked) {
            return Err(Fault::new(
                "BoxBackendUnavailableError",
                format!(
                    "LangBot Box backend unavailable. LangBot asks for `{asked}`, and {error}: \
                     set `box.backend` to `local` in LangBot's config.yaml"
                ),
            ));
        }
        Ok(Some(asked).filter(|asked| !asked.is_empty()))
    }

    fn choice(&self, app: &App) -> Option<Choice> {
        let asked = self.chosen(app);
        (!asked.is_empty()).then(|| Choice::new(&asked))
    }

    /// The backend LangBot asked for, as it spelled it; empty where it leaves that to us or has no
    /// say. While boxes live that it may use, what was asked for before stays: those are where they are.
    fn chosen(&self, app: &App) -> String {
        if !self.backend_is_open {
            return String::new();
        }
        let wanted = self.section().backend().to_owned();
        let mut chosen = self.chosen.lock().unwrap_or_else(PoisonError::into_inner);
        if *chosen != wanted && app.sessions.ids().is_empty() {
            tracing::info!(backend = wanted, "LangBot chooses its backend");
            *chosen = wanted;
        }
        chosen.clone()
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
