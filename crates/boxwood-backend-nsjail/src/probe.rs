//! Probes the host by starting a box: what works, what is missing, and how to fix it.

use boxwood_api::with_causes;
use boxwood_backend::{Finding, Outcome, Probe, ProbeError, StartError, StartRecorder};
use boxwood_local::{probe_box, probe_host};

use crate::{NsjailBackend, program, start};

pub(crate) async fn probe(backend: NsjailBackend) -> Result<Probe, ProbeError> {
    let mut findings = vec![privileges(&backend), nsjail(&backend)];
    let fatal = |finding: &Finding| matches!(finding.outcome, Outcome::Fatal { .. });
    // Without either of them no box can start; one reason is enough.
    if !findings.iter().any(fatal) {
        findings.extend(probe_host(&backend.host));
        let start = |spec| start::start(backend.clone(), spec, StartRecorder::none());
        findings.extend(probe_box(start).await);
    }
    Ok(Probe { findings })
}

fn privileges(backend: &NsjailBackend) -> Finding {
    Finding {
        name: "root",
        mechanism: None,
        outcome: match start::unavailable(backend) {
            None => Outcome::works("every jail has its own range of uids"),
            Some(error) => fatal(&error),
        },
        matters: "jails cannot start without it",
    }
}

fn nsjail(backend: &NsjailBackend) -> Finding {
    Finding {
        name: "nsjail",
        mechanism: None,
        outcome: match program::find(&backend.settings.program) {
            Ok(program) => Outcome::works(format!("`{}` is installed", program.display())),
            Err(error) => fatal(&error),
        },
        matters: "it creates the namespaces of boxes",
    }
}

fn fatal(error: &StartError) -> Outcome {
    Outcome::fatal(with_causes(error), error.hint().unwrap_or("see the log"))
}
