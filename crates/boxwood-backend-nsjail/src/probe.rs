//! Probes the host by starting a box: what works, what is missing, and how to fix it.

use std::time::Duration;

use boxwood_backend::{Finding, Outcome, Probe, ProbeError, StartError, StartRecorder};
use boxwood_local::{chain, probe_box, probe_host};
use tokio::process::Command;

use crate::{NsjailBackend, program, start};

/// For `nsjail --help`.
const DEADLINE: Duration = Duration::from_secs(10);

pub(crate) async fn probe(backend: NsjailBackend) -> Result<Probe, ProbeError> {
    let mut findings = vec![privileges(&backend), nsjail(&backend).await];
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
            None => Outcome::Works {
                detail: "every jail has its own range of uids".to_owned(),
            },
            Some(error) => fatal(&error),
        },
        matters: "jails cannot start without it",
    }
}

async fn nsjail(backend: &NsjailBackend) -> Finding {
    Finding {
        name: "nsjail",
        mechanism: None,
        outcome: match run_help(backend).await {
            Ok(()) => Outcome::Works {
                detail: format!("`{}` runs", backend.settings.program.display()),
            },
            Err(error) => fatal(&error),
        },
        matters: "it creates the namespaces of boxes",
    }
}

fn fatal(error: &StartError) -> Outcome {
    Outcome::Fatal {
        why: chain(error),
        fix: error.hint().unwrap_or("see the log").to_owned(),
    }
}

/// Checks that the program runs and has the options that are used.
async fn run_help(backend: &NsjailBackend) -> Result<(), StartError> {
    let nsjail = program::find(&backend.settings.program)?;
    let help = Command::new(&nsjail)
        .arg("--help")
        .env_clear()
        .kill_on_drop(true)
        .output();
    let unusable = |what: &str| StartError::Unavailable {
        why: format!("`{}` {what}", nsjail.display()),
        hint: program::INSTALL.to_owned(),
    };
    let output = tokio::time::timeout(DEADLINE, help)
        .await
        .map_err(|_elapsed| unusable("did not exit in time"))?
        .map_err(|error| unusable(&format!("cannot be run: {error}")))?;
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    for option in ["--execute_fd", "--disable_rlimits", "--nice_level"] {
        if !text.contains(option) {
            return Err(unusable(&format!("is too old: it has no `{option}`")));
        }
    }
    Ok(())
}
