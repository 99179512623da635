//! Checks whether boxes on this host have the isolation that managed sandboxes require.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use boxwood_api::Mechanism;
use boxwood_backend::{Backend, Outcome, Probe};
use serde_json::{Map, Value, json};

use crate::v0_7::files::local_dirs::not_ready;
use crate::v0_7::state::Settings;
use crate::{ActionError, LangBot};

/// Time limit for probing the host.
const PROBE_TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) struct Readiness {
    /// The operator accepts storage without hard limits.
    soft_storage: bool,
    last: Mutex<Last>,
    /// Held during a probe.
    probing: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Last {
    /// Incremented when the settings change.
    revision: u64,
    report: Option<(Instant, Value)>,
}

impl Readiness {
    pub(crate) fn new(soft_storage: bool) -> Self {
        Self {
            soft_storage,
            last: Mutex::default(),
            probing: tokio::sync::Mutex::new(()),
        }
    }

    /// Discards the cached report, also that of a probe that is running.
    pub(crate) fn forget(&self) {
        let mut last = self.last();
        last.revision += 1;
        last.report = None;
    }

    /// Without a policy, the status of the daemon. With a policy, a report of limited age.
    pub(crate) async fn report(&self, langbot: &LangBot, settings: &Settings) -> Value {
        if !settings.policy.required {
            return standard(langbot);
        }
        let fresh = Duration::from_secs(settings.policy.readiness_cache_sec);
        let _one_at_a_time = self.probing.lock().await;
        let revision = {
            let last = self.last();
            if let Some((seen, report)) = &last.report
                && seen.elapsed() <= fresh
            {
                return report.clone();
            }
            last.revision
        };
        let report = self.strict(langbot, settings).await;
        let mut last = self.last();
        if last.revision == revision {
            last.report = Some((Instant::now(), report.clone()));
        }
        report
    }

    fn last(&self) -> MutexGuard<'_, Last> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) async fn require(
        &self,
        langbot: &LangBot,
        settings: &Settings,
    ) -> Result<(), ActionError> {
        let report = self.report(langbot, settings).await;
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

    async fn strict(&self, langbot: &LangBot, settings: &Settings) -> Value {
        let local = settings.local.clone();
        let workspace = tokio::task::spawn_blocking(move || local.managed_root())
            .await
            .unwrap_or_else(|_| Err(not_ready("Managed sandbox workspace cannot be checked")));
        let mut reason = settings.policy.error.clone();
        if let Err(error) = &workspace {
            reason = Some(error.message().to_owned());
        }
        let engine = langbot.engine();
        let probe = match &engine {
            Some(engine) => probe(&**engine).await,
            None => Err("there is no such backend".to_owned()),
        };
        let probe = probe.map_err(|error| reason = Some(error)).ok();
        let backend = langbot.backend();
        let seen = Seen::new(engine.as_deref(), probe.as_ref());
        let soft = self.soft_storage;
        let available = probe.is_some() && backend.available;
        let mut checks = Map::new();
        for (name, holds) in [
            ("configuration", settings.policy.error.is_none()),
            // Boxes of both backends use the same mechanisms, which are checked below.
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
            // A workspace on the file system of the host has no hard limit.
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
        if let Some(reason) = reason {
            report["error"] = reason.into();
        }
        report
    }
}

async fn probe(engine: &dyn Backend) -> Result<Probe, String> {
    match tokio::time::timeout(PROBE_TIMEOUT, engine.probe()).await {
        Ok(Ok(probe)) => Ok(probe),
        Ok(Err(error)) => {
            tracing::warn!(error = %error, "failed to probe the backend");
            Err(error.to_string())
        }
        Err(_) => Err("the backend did not answer in time".to_owned()),
    }
}

/// Reports whether the daemon can start boxes, with any backend.
fn standard(langbot: &LangBot) -> Value {
    let backend = langbot.sessions.status().backend;
    json!({
        "ready": backend.available,
        "mode": "standard",
        "backend": backend,
        "checks": { "backend_available": backend.available },
    })
}

/// Mechanisms of the backend that work on this host.
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
