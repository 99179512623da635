//! Checks whether boxes on this host have the isolation that managed sandboxes require.

use std::time::{Duration, Instant};

use boxwood_api::{Mechanism, with_causes};
use boxwood_backend::{Backend, Finding, Outcome, Probe};
use serde_json::{Map, Value, json};

use crate::error::{blocking, not_ready};
use crate::v0_7::state::Settings;
use crate::{ActionError, LangBot};

/// Time limit for probing the host.
const PROBE_TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) struct Readiness {
    /// The operator accepts storage without hard limits.
    soft_storage: bool,
    /// The last report. Locked during a probe, so that there is one at a time.
    last: tokio::sync::Mutex<Option<Cached>>,
}

struct Cached {
    /// Revision of the settings.
    revision: u64,
    at: Instant,
    report: Value,
}

impl Readiness {
    pub(crate) fn new(soft_storage: bool) -> Self {
        Self {
            soft_storage,
            last: tokio::sync::Mutex::default(),
        }
    }

    /// Without a policy, the status of the daemon. With a policy, a report of limited age.
    pub(crate) async fn report(&self, langbot: &LangBot, settings: &Settings) -> Value {
        if !settings.policy.required {
            return standard(langbot);
        }
        let max_age = Duration::from_secs(settings.policy.readiness_cache_sec);
        let mut last = self.last.lock().await;
        if let Some(cached) = &*last
            && cached.revision == settings.revision
            && cached.at.elapsed() <= max_age
        {
            return cached.report.clone();
        }
        let report = self.strict(langbot, settings).await;
        *last = Some(Cached {
            revision: settings.revision,
            at: Instant::now(),
            report: report.clone(),
        });
        report
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
            .filter(|(_, passed)| **passed != true)
            .map(|(name, _)| name.as_str())
            .collect();
        Err(not_ready(format!(
            "Managed sandbox isolation is not ready (failed checks: {})",
            failed.join(", ")
        )))
    }

    async fn strict(&self, langbot: &LangBot, settings: &Settings) -> Value {
        let local = settings.local.clone();
        let failure = "Managed sandbox workspace cannot be checked";
        let workspace = blocking(failure, move || local.managed_root()).await;
        let mut reason = settings.policy.error.clone();
        if let Err(error) = &workspace {
            reason = Some(error.message().to_owned());
        }
        let active = langbot.active_backend();
        let probe = match &active {
            Some(active) => probe(&**active).await,
            None => Err("the daemon has no backend of LangBot's choice".to_owned()),
        };
        let probe = probe.map_err(|error| reason = Some(error)).ok();
        let backend = langbot.backend();
        let mechanisms = working_mechanisms(active.as_deref(), probe.as_ref());
        let has = |mechanism| mechanisms.contains(&mechanism);
        let limited =
            has(Mechanism::CpuLimit) && has(Mechanism::MemoryLimit) && has(Mechanism::PidsLimit);
        let soft = self.soft_storage;
        let available = probe.is_some() && backend.available;
        let mut checks = Map::new();
        for (name, passed) in [
            ("configuration", settings.policy.error.is_none()),
            // Boxes of both backends use the same mechanisms, which are checked below.
            (
                "required_backend",
                matches!(backend.name.as_deref(), Some("nsjail" | "native")),
            ),
            ("workspace_mount", workspace.is_ok()),
            ("backend_available", available),
            ("cgroup_v2", limited),
            ("namespace_isolation", has(Mechanism::PidNamespace)),
            ("mount_isolation", has(Mechanism::MountNamespace)),
            ("network_isolation", has(Mechanism::NetNamespace)),
            // A workspace on the file system of the host has no hard limit.
            ("hard_workspace_quota", soft),
            ("hard_read_only_mount_quota", soft),
            (
                "bounded_ephemeral_storage",
                soft || has(Mechanism::DiskQuota),
            ),
            ("inode_quota", soft),
            ("session_cap", settings.policy.max_sessions <= 1),
            (
                "managed_process_cap",
                settings.policy.max_managed_processes == 0,
            ),
        ] {
            checks.insert(name.to_owned(), passed.into());
        }
        let ready = checks.values().all(|passed| *passed == true);
        let mut report = json!({
            "ready": ready,
            "mode": "grant_enforced",
            "backend": {
                "name": backend.name,
                "available": available,
                "details": { "mechanisms": mechanisms },
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

async fn probe(backend: &dyn Backend) -> Result<Probe, String> {
    match tokio::time::timeout(PROBE_TIMEOUT, backend.probe()).await {
        Ok(Ok(probe)) => Ok(probe),
        Ok(Err(error)) => {
            let error = with_causes(&error);
            tracing::warn!(error, "failed to probe the backend");
            Err(error)
        }
        Err(_) => Err(format!(
            "backend `{}` did not answer within {} s",
            backend.name(),
            PROBE_TIMEOUT.as_secs()
        )),
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
fn working_mechanisms(backend: Option<&dyn Backend>, probe: Option<&Probe>) -> Vec<Mechanism> {
    let (Some(backend), Some(probe)) = (backend, probe) else {
        return Vec::new();
    };
    let is_fatal = |finding: &Finding| matches!(finding.outcome, Outcome::Fatal { .. });
    if probe.findings.iter().any(is_fatal) {
        return Vec::new();
    }
    let works = |mechanism: &Mechanism| {
        probe.findings.iter().all(|finding| {
            finding.mechanism != Some(*mechanism)
                || matches!(finding.outcome, Outcome::Works { .. })
        })
    };
    let mechanisms = backend.capabilities().mechanisms;
    mechanisms.into_iter().filter(works).collect()
}
