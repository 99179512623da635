//! Whether boxes here are as closed as a managed sandbox must be.
//!
//! Comes in: what the backend says of this host, and where workspaces are. Goes out: a list of checks
//! and whether all of them hold. Never here: making up for one that does not.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use boxwood_api::Mechanism;
use boxwood_backend::{Backend, Outcome, Probe};
use serde_json::{Map, Value, json};

use super::local::not_ready;
use super::state::Settings;
use crate::http::App;
use crate::langbot::Fault;

/// What looking at the host may take.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Readiness {
    /// The operator lives with storage that has no hard limits.
    soft_storage: bool,
    last: Mutex<Last>,
    /// One look at a time.
    looking: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Last {
    /// How often the settings have changed.
    asked: u64,
    report: Option<(Instant, Value)>,
}

impl Readiness {
    pub(crate) fn new(soft_storage: bool) -> Self {
        Self {
            soft_storage,
            last: Mutex::default(),
            looking: tokio::sync::Mutex::new(()),
        }
    }

    /// The next look is a new one, also when one is under way.
    pub(crate) fn forget(&self) {
        let mut last = self.last();
        last.asked += 1;
        last.report = None;
    }

    /// Without a policy, what is known anyway; with one, at most as old as it says.
    pub(crate) async fn look(&self, app: &App, settings: &Settings) -> Value {
        if !settings.policy.required {
            return standard(app);
        }
        let fresh = Duration::from_secs(settings.policy.readiness_cache_sec);
        let _one_at_a_time = self.looking.lock().await;
        let asked = {
            let last = self.last();
            if let Some((seen, report)) = &last.report
                && seen.elapsed() <= fresh
            {
                return report.clone();
            }
            last.asked
        };
        let report = self.strict(app, settings).await;
        let mut last = self.last();
        if last.asked == asked {
            last.report = Some((Instant::now(), report.clone()));
        }
        report
    }

    fn last(&self) -> MutexGuard<'_, Last> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) async fn require(&self, app: &App, settings: &Settings) -> Result<(), Fault> {
        let report = self.look(app, settings).await;
        if report["ready"] == true {
            return Ok(());
        }
        let failed: Vec<&str> = report["checks"]
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(_, holds)| **holds != true)
            .map(|(name, _)| name.as_str())
            .collect();
        Err(not_ready(&format!(
            "Managed sandbox isolation is not ready (failed checks: {})",
            failed.join(", ")
        )))
    }

    async fn strict(&self, app: &App, settings: &Settings) -> Value {
        let local = settings.local.clone();
        let workspace = tokio::task::spawn_blocking(move || local.managed_root())
            .await
            .unwrap_or_else(|_| Err(not_ready("Managed sandbox workspace cannot be looked at")));
        let mut error = settings.policy.fault.clone();
        if let Err(fault) = &workspace {
            error = Some(fault.message().to_owned());
        }
        let engine = app.langbot.engine(app);
        let probe = match &engine {
            Some(engine) => probe(&**engine).await,
            None => Err("there is no such backend".to_owned()),
        };
        let probe = probe.map_err(|fault| error = Some(fault)).ok();
        let backend = app.langbot.backend(app);
        let seen = Seen::new(engine.as_deref(), probe.as_ref());
        let soft = self.soft_storage;
        let available = probe.is_some() && backend.available;
        let mut checks = Map::new();
        for (name, holds) in [
            ("configuration", settings.policy.fault.is_none()),
            // Boxes of this daemon are made with the same means; the checks below look for each.
            (
                "required_backend",
                matches!(backend.name.as_deref(), Some("nsjail" | "native")),
            ),
            ("workspace_mount", workspace.is_ok()),
            ("backend_available", available),
            ("cgroup_v2", seen.cgroups()),
            ("namespace_isolation", seen.has(Mechanism::PidNamespace)),
            ("mount_isolation", seen.has(Mechanism::MountNamespace)),
            ("network_isolation", seen.has(Mechanism::NetNamespace)),
            // A workspace on the host's own file system has no bound that we could vouch for.
            ("hard_workspace_quota", soft),
            ("hard_read_only_mount_quota", soft),
            (
                "bounded_ephemeral_storage",
                soft || seen.has(Mechanism::DiskQuota),
            ),
            ("inode_quota", soft),
            ("session_cap", settings.policy.max_sessions <= 1),
            (
                "managed_process_cap",
                settings.policy.max_managed_processes == 0,
            ),
        ] {
            checks.insert(name.to_owned(), holds.into());
        }
        let ready = checks.values().all(|holds| *holds == true);
        let mut report = json!({
            "ready": ready,
            "mode": "grant_enforced",
            "backend": {
                "name": backend.name,
                "available": available,
                "details": seen.details(),
            },
            "checks": checks,
            "unsafe_soft_storage_limits": soft,
        });
        if let Some(error) = error {
            report["error"] = error.into();
        }
        report
    }
}

async fn probe(engine: &dyn Backend) -> Result<Probe, String> {
    match tokio::time::timeout(PATIENCE, engine.probe()).await {
        Ok(Ok(probe)) => Ok(probe),
        Ok(Err(fault)) => {
            tracing::warn!(error = %fault, "the backend could not be looked at");
            Err(fault.to_string())
        }
        Err(_) => Err("the backend did not answer in time".to_owned()),
    }
}

/// Of the daemon, whatever backend LangBot asks for: probes ask whether boxes can be started.
fn standard(app: &App) -> Value {
    let backend = app.sessions.status().backend;
    json!({
        "ready": backend.available,
        "mode": "standard",
        "backend": backend,
        "checks": { "backend_available": backend.available },
    })
}

/// Mechanisms that the backend has and the host did not refuse.
struct Seen {
    mechanisms: Vec<Mechanism>,
}

impl Seen {
    fn new(engine: Option<&dyn Backend>, probe: Option<&Probe>) -> Self {
        let (Some(engine), Some(probe)) = (engine, probe) else {
            return Self {
                mechanisms: Vec::new(),
            };
        };
        let refused = |mechanism: Mechanism| {
            probe.findings.iter().any(|finding| {
                finding.mechanism == Some(mechanism)
                    && !matches!(finding.outcome, Outcome::Works { .. })
            })
        };
        let no_box = probe
            .findings
            .iter()
            .any(|finding| matches!(finding.outcome, Outcome::Fatal { .. }));
        let mechanisms = engine.capabilities().mechanisms;
        Self {
            mechanisms: mechanisms
                .into_iter()
                .filter(|mechanism| !no_box && !refused(*mechanism))
                .collect(),
        }
    }

    fn has(&self, mechanism: Mechanism) -> bool {
        self.mechanisms.contains(&mechanism)
    }

    fn cgroups(&self) -> bool {
        [
            Mechanism::CpuLimit,
            Mechanism::MemoryLimit,
            Mechanism::PidsLimit,
        ]
        .into_iter()
        .all(|limit| self.has(limit))
    }

    fn details(&self) -> Value {
        json!({ "mechanisms": self.mechanisms })
    }
}
