//! One backend and its last probe.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use boxwood_backend::{Backend, Outcome, Probe, ProbeError, Progress, StartError, StartRecorder};
use boxwood_policy::AdmittedSpec;
use tokio::time::{Instant, timeout};

use super::{Begun, Candidate, Place};
use crate::session::activity::lock;

/// A probe uses every mechanism, so a good result is kept for a while.
const GOOD_FOR: Duration = Duration::from_mins(1);

/// An operator may be fixing it.
const BAD_FOR: Duration = Duration::from_secs(5);

/// An engine that does not answer is not available.
const LONGEST_LOOK: Duration = Duration::from_secs(30);

/// Why a backend is not available, and what helps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) why: String,
    pub(crate) fix: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Not probed yet, which counts as not available.
    Unknown,
    Works,
    Fails(Fault),
}

struct Seen {
    verdict: Verdict,
    /// `None` if the next caller has to probe.
    at: Option<Instant>,
}

impl Seen {
    fn is_stale(&self) -> bool {
        let good_for = match self.verdict {
            Verdict::Works => GOOD_FOR,
            Verdict::Unknown | Verdict::Fails(_) => BAD_FOR,
        };
        self.at.is_none_or(|at| at.elapsed() > good_for)
    }
}

pub(crate) struct Member {
    pub(crate) name: String,
    pub(super) place: Place,
    kind: Kind,
}

enum Kind {
    Living {
        backend: Arc<dyn Backend>,
        seen: Mutex<Seen>,
        /// Locked during a probe; other callers wait for its result.
        looking: tokio::sync::Mutex<()>,
    },
    Absent(Fault),
}

impl Member {
    pub(super) fn new(candidate: Candidate) -> Self {
        let kind = match candidate.backend {
            Ok(backend) => Kind::Living {
                backend,
                seen: Mutex::new(Seen {
                    verdict: Verdict::Unknown,
                    at: None,
                }),
                looking: tokio::sync::Mutex::default(),
            },
            Err(fault) => Kind::Absent(fault),
        };
        Self {
            name: candidate.name,
            place: candidate.place,
            kind,
        }
    }

    /// `None` if it could not be initialised.
    pub(crate) fn backend(&self) -> Option<&Arc<dyn Backend>> {
        match &self.kind {
            Kind::Living { backend, .. } => Some(backend),
            Kind::Absent(_) => None,
        }
    }

    pub(super) fn verdict(&self) -> Verdict {
        match &self.kind {
            Kind::Living { seen, .. } => lock(seen).verdict.clone(),
            Kind::Absent(fault) => Verdict::Fails(fault.clone()),
        }
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

    /// Returns the result of a recent probe. Concurrent callers share one probe.
    pub(super) async fn probe(&self) -> Verdict {
        let Kind::Living {
            backend,
            seen,
            looking,
        } = &self.kind
        else {
            return self.verdict();
        };
        if lock(seen).is_stale() {
            let _alone = looking.lock().await;
            if lock(seen).is_stale() {
                let verdict = match timeout(LONGEST_LOOK, backend.probe()).await {
                    Ok(probe) => judged(&self.name, &probe),
                    Err(_) => Verdict::Fails(Fault {
                        why: format!("it did not answer within {} s", LONGEST_LOOK.as_secs()),
                        fix: format!("see whether `{}` hangs on this machine", self.name),
                    }),
                };
                self.record(verdict, Some(Instant::now()));
            }
        }
        self.verdict()
    }

    /// Probes again and returns all details.
    pub(super) async fn examine(&self) -> Option<Result<Probe, ProbeError>> {
        let probe = self.backend()?.probe().await;
        self.record(judged(&self.name, &probe), Some(Instant::now()));
        Some(probe)
    }

    /// Starts a probe if the last one is old and none is in progress.
    pub(super) fn probe_in_background(self: &Arc<Self>) {
        if let Kind::Living { seen, looking, .. } = &self.kind
            && lock(seen).is_stale()
            && looking.try_lock().is_ok()
        {
            let member = Arc::clone(self);
            tokio::spawn(async move { member.probe().await });
        }
    }

    pub(super) async fn start(
        &self,
        spec: &AdmittedSpec,
        progress: &Progress,
        witness: &StartRecorder,
    ) -> Result<Begun, StartError> {
        let backend = match &self.kind {
            Kind::Living { backend, .. } => backend,
            Kind::Absent(fault) => {
                return Err(StartError::Unavailable {
                    why: fault.why.clone(),
                    hint: fault.fix.clone(),
                });
            }
        };
        let spec = Arc::new(spec.on_backend(&self.name));
        match backend.start(&spec, progress, witness).await {
            Ok(sandbox) => {
                self.record(Verdict::Works, Some(Instant::now()));
                Ok(Begun {
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
        if let Kind::Living { seen, .. } = &self.kind {
            *lock(seen) = Seen { verdict, at };
        }
    }
}

fn judged(name: &str, probe: &Result<Probe, ProbeError>) -> Verdict {
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
            tracing::warn!(backend = name, %error, source = ?error.source, "failed to probe a backend");
            Verdict::Fails(Fault {
                why: error.to_string(),
                fix: "the log has the cause".to_owned(),
            })
        }
    }
}
