//! One backend and its last probe.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use boxwood_api::with_causes;
use boxwood_backend::{Backend, Outcome, Probe, ProbeError, Progress, StartError, StartRecorder};
use boxwood_policy::AdmittedSpec;
use tokio::time::{Instant, timeout};

use super::StartedBox;
use crate::session::activity::lock;

/// A probe uses every mechanism, so a good result is kept for a while.
const GOOD_FOR: Duration = Duration::from_mins(1);

/// An operator may be fixing it.
const BAD_FOR: Duration = Duration::from_secs(5);

/// An engine that does not answer is not available.
const PROBE_TIMEOUT: Duration = Duration::from_secs(30);

/// Why a backend is not available, and what helps.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) why: String,
    pub(crate) fix: String,
}

#[derive(Clone, PartialEq, Eq)]
enum Verdict {
    /// Not probed yet, which counts as not available.
    Unknown,
    Works,
    Fails(Fault),
}

struct LastProbe {
    verdict: Verdict,
    /// `None` if the next caller has to probe.
    at: Option<Instant>,
}

/// A backend that the daemon may use.
pub struct Candidate {
    pub(crate) name: String,
    pub(super) is_local: bool,
    backend: Option<Arc<dyn Backend>>,
    last_probe: Mutex<LastProbe>,
    /// Locked during a probe; other callers wait for its result.
    probing: tokio::sync::Mutex<()>,
}

impl Candidate {
    /// A backend that was initialised. Probes show whether it can start boxes.
    pub fn initialised(backend: Arc<dyn Backend>) -> Self {
        let name = backend.name();
        Self::new(name, Some(backend), Verdict::Unknown)
    }

    /// A backend that could not be initialised.
    pub fn absent(name: &str, why: impl Into<String>, hint: impl Into<String>) -> Self {
        let fault = Fault {
            why: why.into(),
            fix: hint.into(),
        };
        Self::new(name, None, Verdict::Fails(fault))
    }

    fn new(name: &str, backend: Option<Arc<dyn Backend>>, verdict: Verdict) -> Self {
        Self {
            name: name.to_owned(),
            is_local: true,
            backend,
            last_probe: Mutex::new(LastProbe { verdict, at: None }),
            probing: tokio::sync::Mutex::default(),
        }
    }

    /// Its boxes are on other machines, so `local` does not include it.
    #[must_use]
    pub fn remote(self) -> Self {
        Self {
            is_local: false,
            ..self
        }
    }

    /// `None` if it could not be initialised.
    pub(crate) fn backend(&self) -> Option<&Arc<dyn Backend>> {
        self.backend.as_ref()
    }

    fn verdict(&self) -> Verdict {
        lock(&self.last_probe).verdict.clone()
    }

    pub(super) fn works(&self) -> bool {
        self.verdict() == Verdict::Works
    }

    pub(super) fn fault(&self) -> Option<Fault> {
        match self.verdict() {
            Verdict::Fails(fault) => Some(fault),
            Verdict::Unknown | Verdict::Works => None,
        }
    }

    fn is_stale(&self) -> bool {
        let last_probe = lock(&self.last_probe);
        let good_for = match last_probe.verdict {
            Verdict::Works => GOOD_FOR,
            Verdict::Unknown | Verdict::Fails(_) => BAD_FOR,
        };
        last_probe.at.is_none_or(|at| at.elapsed() > good_for)
    }

    /// Returns whether a recent probe was successful. Concurrent callers share one probe.
    pub(super) async fn probe(&self) -> bool {
        if let Some(backend) = &self.backend
            && self.is_stale()
        {
            let _guard = self.probing.lock().await;
            if self.is_stale() {
                let verdict = match timeout(PROBE_TIMEOUT, backend.probe()).await {
                    Ok(probe) => verdict_of(&self.name, &probe),
                    Err(_) => Verdict::Fails(Fault {
                        why: format!("it did not answer within {} s", PROBE_TIMEOUT.as_secs()),
                        fix: format!("check whether `{}` hangs on this machine", self.name),
                    }),
                };
                self.record(verdict, Some(Instant::now()));
            }
        }
        self.works()
    }

    /// Probes again and returns all details.
    pub(super) async fn examine(&self) -> Option<Result<Probe, ProbeError>> {
        let probe = self.backend()?.probe().await;
        self.record(verdict_of(&self.name, &probe), Some(Instant::now()));
        Some(probe)
    }

    /// Starts a probe if the last one is old and none is in progress.
    pub(super) fn probe_in_background(self: &Arc<Self>) {
        if self.backend.is_some() && self.is_stale() && self.probing.try_lock().is_ok() {
            let candidate = Arc::clone(self);
            tokio::spawn(async move { candidate.probe().await });
        }
    }

    pub(super) async fn start(
        &self,
        backend: &Arc<dyn Backend>,
        spec: &AdmittedSpec,
        progress: &Progress,
        recorder: &StartRecorder,
    ) -> Result<StartedBox, StartError> {
        let spec = Arc::new(spec.on_backend(&self.name));
        match backend.start(&spec, progress, recorder).await {
            Ok(sandbox) => {
                self.record(Verdict::Works, Some(Instant::now()));
                Ok(StartedBox {
                    backend: Arc::clone(backend),
                    sandbox,
                    spec,
                })
            }
            Err(error) => {
                if let StartError::Unavailable { why, hint } = &error {
                    let (why, fix) = (why.clone(), hint.clone());
                    // Not available until the next probe, which is due now.
                    self.record(Verdict::Fails(Fault { why, fix }), None);
                }
                Err(error)
            }
        }
    }

    fn record(&self, verdict: Verdict, at: Option<Instant>) {
        *lock(&self.last_probe) = LastProbe { verdict, at };
    }
}

fn verdict_of(name: &str, probe: &Result<Probe, ProbeError>) -> Verdict {
    match probe {
        Ok(probe) => {
            let fatal = probe.findings.iter().find_map(|finding| {
                let Outcome::Fatal { why, fix } = &finding.outcome else {
                    return None;
                };
                Some(Fault {
                    why: why.clone(),
                    fix: fix.clone(),
                })
            });
            fatal.map_or(Verdict::Works, Verdict::Fails)
        }
        Err(error) => {
            tracing::warn!(backend = name, error = %with_causes(error), "failed to probe a backend");
            Verdict::Fails(Fault {
                why: error.to_string(),
                fix: "see the cause in the log of the daemon".to_owned(),
            })
        }
    }
}
