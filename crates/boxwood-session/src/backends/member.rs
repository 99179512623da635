//! One backend, and whether it works, from the last time somebody looked.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use boxwood_backend::{Backend, Outcome, Probe, ProbeError, Progress, StartError, Witness};
use boxwood_policy::AdmittedSpec;
use tokio::time::{Instant, timeout};

use super::{Begun, Candidate, Place};
use crate::activity::lock;

/// A probe tries every mechanism by using it, so a good answer serves for a while.
const GOOD_FOR: Duration = Duration::from_mins(1);

/// Somebody may be mending it right now.
const BAD_FOR: Duration = Duration::from_secs(5);

/// An engine that does not answer does not work.
const LONGEST_LOOK: Duration = Duration::from_secs(30);

/// Why a backend does not work, and what helps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) why: String,
    pub(crate) fix: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nobody has looked. It counts as not available: nothing has shown that it works.
    Unknown,
    Works,
    Fails(Fault),
}

struct Seen {
    verdict: Verdict,
    /// `None` when nobody looked since: the next who asks does.
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
        /// Held by the one who looks; the others wait for what he sees.
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

    /// `None` for one that could not be launched.
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

    /// Whether it works, by a look that is not long ago. Several who ask share one look.
    pub(super) async fn look(&self) -> Verdict {
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
                self.record(verdict);
            }
        }
        self.verdict()
    }

    /// The same, with everything that was seen, always by a new look.
    pub(super) async fn examine(&self) -> Option<Result<Probe, ProbeError>> {
        let probe = self.backend()?.probe().await;
        self.record(judged(&self.name, &probe));
        Some(probe)
    }

    /// Begins a look where the last one was long ago and nobody is at it.
    pub(super) fn look_in_background(self: &Arc<Self>) {
        if let Kind::Living { seen, looking, .. } = &self.kind
            && lock(seen).is_stale()
            && looking.try_lock().is_ok()
        {
            let member = Arc::clone(self);
            tokio::spawn(async move { member.look().await });
        }
    }

    pub(super) async fn start(
        &self,
        spec: &AdmittedSpec,
        progress: &Progress,
        witness: &Witness,
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
                self.record(Verdict::Works);
                Ok(Begun {
                    backend: Arc::clone(backend),
                    sandbox,
                    spec,
                })
            }
            Err(error) => {
                if let StartError::Unavailable { why, hint } = &error {
                    self.failed(why, hint);
                }
                Err(error)
            }
        }
    }

    /// One box that did not start says so at once; whether that is still so, the next look tells.
    fn failed(&self, why: &str, fix: &str) {
        if let Kind::Living { seen, .. } = &self.kind {
            *lock(seen) = Seen {
                verdict: Verdict::Fails(Fault {
                    why: why.to_owned(),
                    fix: fix.to_owned(),
                }),
                at: None,
            };
        }
    }

    fn record(&self, verdict: Verdict) {
        if let Kind::Living { seen, .. } = &self.kind {
            *lock(seen) = Seen {
                verdict,
                at: Some(Instant::now()),
            };
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
            tracing::warn!(backend = name, %error, source = ?error.source, "a backend could not be looked at");
            Verdict::Fails(Fault {
                why: error.to_string(),
                fix: "the log has the cause".to_owned(),
            })
        }
    }
}
