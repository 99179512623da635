//! State that all LangBot connections share, and the parts of the daemon that actions use.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use boxwood_api::{BackendInfo, SpecRequest};
use boxwood_backend::Backend;
use boxwood_policy::{Facts, Origin, PolicyRules, check_place};
use boxwood_session::{Choice, Sessions};
use boxwood_skills::{SkillStore, real_path};
use futures_util::future::BoxFuture;
use http::HeaderMap;
use serde_json::{Map, Value};
use tokio::sync::watch;

use crate::box_config::BoxConfig;
use crate::error::blocking;
use crate::uploads::Uploads;
use crate::{ActionError, Environment, InstanceError, v0_7};

/// Minimum interval between two log lines about refused connections.
const REFUSAL_LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Time limit for probing the backend that LangBot selects.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

/// Opens the host paths and skills that a request names.
pub type GatherFacts = for<'a> fn(&'a SpecRequest, &'a SkillStore) -> BoxFuture<'a, Facts>;

/// Records the duration of a command in the daemon's metrics.
pub type RecordExec = Box<dyn Fn(Duration) + Send + Sync>;

/// The parts of the daemon that actions use.
pub struct Services {
    pub sessions: Sessions,
    pub rules: PolicyRules,
    pub skills: SkillStore,
    /// Time limit for starting a box, including an image pull.
    pub start_timeout: Duration,
    /// Time limit for other calls to a backend.
    pub backend_timeout: Duration,
    pub gather_facts: GatherFacts,
    pub record_exec: RecordExec,
}

/// The daemon's settings for LangBot.
#[derive(Clone)]
pub struct Settings {
    pub environment: Environment,
    /// Base directory of relative paths in LangBot's configuration.
    pub root: PathBuf,
    /// False if the operator has chosen the backend.
    pub may_choose_backend: bool,
    /// False if the operator has chosen the directory of skills.
    pub may_move_skills: bool,
    pub max_zip_bytes: usize,
}

/// Settings that were checked, before the sessions exist.
pub struct Setup {
    settings: Settings,
    config: BoxConfig,
    v0_7: v0_7::State,
}

impl Setup {
    pub fn new(settings: Settings) -> Result<Self, InstanceError> {
        let config = BoxConfig::new(&settings.environment);
        Ok(Self {
            v0_7: v0_7::State::new(&settings.environment, &config, &settings.root)?,
            config,
            settings,
        })
    }
}

pub struct LangBot {
    pub(crate) sessions: Sessions,
    pub(crate) rules: PolicyRules,
    pub(crate) skills: SkillStore,
    pub(crate) start_timeout: Duration,
    pub(crate) backend_timeout: Duration,
    pub(crate) gather_facts: GatherFacts,
    pub(crate) record_exec: RecordExec,
    pub(crate) uploads: Uploads,
    pub(crate) v0_7: v0_7::State,
    config: Mutex<BoxConfig>,
    settings: Settings,
    /// The backend in use, as LangBot spelled it.
    selected_backend: Mutex<String>,
    last_refusal: Mutex<Option<Instant>>,
    running_requests: watch::Sender<usize>,
}

impl LangBot {
    pub fn new(setup: Setup, services: Services) -> Self {
        Self {
            sessions: services.sessions,
            rules: services.rules,
            skills: services.skills,
            start_timeout: services.start_timeout,
            backend_timeout: services.backend_timeout,
            gather_facts: services.gather_facts,
            record_exec: services.record_exec,
            uploads: Uploads::new(setup.settings.max_zip_bytes),
            v0_7: setup.v0_7,
            config: Mutex::new(setup.config),
            settings: setup.settings,
            selected_backend: Mutex::default(),
            last_refusal: Mutex::default(),
            running_requests: watch::Sender::new(0),
        }
    }

    /// Applies the configuration from the environment. An error is logged and does not stop the daemon.
    pub async fn apply_environment(&self) {
        let applied = match v0_7::apply_environment(self).await {
            Ok(()) => self.configure(Map::new()).await,
            error => error,
        };
        if let Err(error) = applied {
            tracing::warn!(%error, "failed to apply LangBot's configuration from the environment");
        }
    }

    /// Returns true if a handshake has the control token, which replaces a daemon token on LangBot's
    /// routes.
    pub fn has_control_token(&self, headers: &HeaderMap) -> bool {
        self.v0_7.gate.has_token(headers)
    }

    /// Logs a refused connection, at most once per interval because any peer can cause it.
    pub fn log_refusal(&self, reason: &str) {
        let now = Instant::now();
        let mut last = lock(&self.last_refusal);
        if last.is_some_and(|last| now - last < REFUSAL_LOG_INTERVAL) {
            return;
        }
        *last = Some(now);
        tracing::warn!(
            reason,
            "refused a LangBot connection; check `auth.trusted_uids`, `langbot.trusted_peers`, LANGBOT_BOX_CONTROL_TOKEN and LANGBOT_BOX_TRUSTED_INSTANCE_UUID"
        );
    }

    /// Whether boxes can be started, in the format of LangBot's readiness probe.
    pub async fn readiness(&self) -> Value {
        let settings = self.v0_7.settings();
        self.v0_7.readiness.report(self, &settings).await
    }

    /// Resolves when no request is running, or after `timeout`.
    pub async fn idle(&self, timeout: Duration) {
        let mut running = self.running_requests.subscribe();
        let idle = running.wait_for(|count| *count == 0);
        if tokio::time::timeout(timeout, idle).await.is_err() {
            tracing::warn!("LangBot requests still run after {} s", timeout.as_secs());
        }
    }

    /// Counts a request as running until the guard is dropped.
    pub(crate) fn begin_request(&self) -> RunningRequest {
        self.running_requests.send_modify(|count| *count += 1);
        RunningRequest(self.running_requests.clone())
    }

    /// Merges an update into LangBot's configuration and applies it.
    pub(crate) async fn configure(&self, update: Map<String, Value>) -> Result<(), ActionError> {
        let skills_root = {
            let mut config = self.config();
            config.merge(update);
            config.skills_root(self.root())
        };
        self.probe_backend().await;
        match skills_root {
            Some(root) if self.settings.may_move_skills => {
                move_skills(root, &self.skills, &self.rules).await
            }
            _ => Ok(()),
        }
    }

    /// Probes the selected backend now, so that the next status request reports its real state.
    pub(crate) async fn probe_backend(&self) {
        if let Some(choice) = self.choice() {
            let probe = self.sessions.backends().probe_for(&choice);
            if tokio::time::timeout(PROBE_TIMEOUT, probe).await.is_err() {
                tracing::warn!(
                    "probing LangBot's backend timed out; continuing without the result"
                );
            }
        }
    }

    /// Base directory of relative paths in LangBot's configuration.
    pub(crate) fn root(&self) -> &Path {
        &self.settings.root
    }

    pub(crate) fn config(&self) -> MutexGuard<'_, BoxConfig> {
        lock(&self.config)
    }

    /// The backend as clients see it. A selected backend that is unavailable has no name.
    pub(crate) fn backend(&self) -> BackendInfo {
        let backends = self.sessions.backends();
        let Some(choice) = self.choice() else {
            return backends.info();
        };
        let mut info = backends.info_for(&choice);
        if matches!(choice, Choice::Named(_)) && !info.available {
            info.name = None;
        }
        info
    }

    /// The backend of LangBot's boxes. `None` if there is no such backend.
    pub(crate) fn active_backend(&self) -> Option<Arc<dyn Backend>> {
        let backends = self.sessions.backends();
        match self.choice() {
            None => backends.current(),
            Some(choice) => backends.current_for(&choice),
        }
    }

    /// The backend to name in a request; `None` uses the operator's choice. Fails if LangBot selected a
    /// backend that does not exist.
    pub(crate) fn required_backend(&self) -> Result<Option<String>, ActionError> {
        let selected = self.selected_backend();
        if let Err(error) = self.sessions.backends().check(&selected) {
            return Err(ActionError::new(
                "BoxBackendUnavailableError",
                format!(
                    "LangBot Box backend unavailable. LangBot selects `{selected}`, and {error}: \
                     set `box.backend` to `local` in LangBot's config.yaml"
                ),
            ));
        }
        Ok(Some(selected).filter(|selected| !selected.is_empty()))
    }

    fn choice(&self) -> Option<Choice> {
        let selected = self.selected_backend();
        (!selected.is_empty()).then(|| Choice::new(&selected))
    }

    /// The backend that LangBot selected, as it spelled it; empty if it selected none or may not. A new
    /// selection takes effect once no session exists, because existing sessions cannot move.
    fn selected_backend(&self) -> String {
        if !self.settings.may_choose_backend {
            return String::new();
        }
        let configured = self.config().backend().to_owned();
        let mut selected = lock(&self.selected_backend);
        if *selected != configured && self.sessions.ids().is_empty() {
            tracing::info!(backend = configured, "LangBot selects its backend");
            *selected = configured;
        }
        selected.clone()
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A request that is running.
pub(crate) struct RunningRequest(watch::Sender<usize>);

impl Drop for RunningRequest {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

/// Fails for directories that LangBot may not mount: the daemon writes skills there with its own
/// privileges.
async fn move_skills(
    root: PathBuf,
    store: &SkillStore,
    rules: &PolicyRules,
) -> Result<(), ActionError> {
    if root == store.root() {
        return Ok(());
    }
    let path = root.clone();
    let failure = "the skill directory could not be resolved";
    let real = blocking(failure, move || Ok(real_path(&path))).await?;
    let path_text = root.display().to_string();
    check_place(
        "skills_root",
        &path_text,
        &real,
        Origin::LangBotPlatform,
        rules,
    )?;
    tracing::info!(root = %root.display(), "using LangBot's skill directory");
    store.set_root(root);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parent_components_are_resolved_from_the_real_location() {
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
