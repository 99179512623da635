//! Looks at the engine by using it: what works, what is missing, and the command that mends it.

use std::sync::Arc;
use std::time::Duration;

use boxwood_backend::{Finding, Outcome, Probe, ProbeError};

use crate::Shared;
use crate::args::Args;
use crate::start::unavailable;

/// An engine that needs longer to say who it is will not start boxes in good time.
const INFO: Duration = Duration::from_secs(10);

pub(crate) async fn probe(shared: Arc<Shared>) -> Result<Probe, ProbeError> {
    let engine = engine(&shared).await;
    let there = matches!(engine.outcome, Outcome::Works { .. });
    let mut findings = vec![engine];
    if there {
        findings.push(leftovers(&shared).await);
        findings.push(image(&shared).await);
    }
    Ok(Probe { findings })
}

async fn engine(shared: &Shared) -> Finding {
    let args = Args::new(["info", "--format", "{{json .}}"]);
    let outcome = match shared.cli.run(args.0, INFO).await {
        // Docker's client answers for itself and prints that the daemon did not.
        Ok(told) if told.contains("\"ServerErrors\":[\"") => fatal(
            shared,
            &crate::cli::CliError::Refused {
                said: "Cannot connect to the Docker daemon".to_owned(),
            },
        ),
        Ok(_) => Outcome::Works {
            detail: format!("`{} info` answers", shared.cli.program()),
        },
        Err(error) => fatal(shared, &error),
    };
    Finding {
        name: "engine",
        mechanism: None,
        outcome,
        matters: "it makes the containers that boxes are",
    }
}

fn fatal(shared: &Shared, error: &crate::cli::CliError) -> Outcome {
    let error = unavailable(shared, error);
    Outcome::Fatal {
        why: boxwood_local::chain(&error),
        fix: error
            .hint()
            .unwrap_or("see what the engine's own `info` says")
            .to_owned(),
    }
}

async fn leftovers(shared: &Shared) -> Finding {
    let outcome = match shared.janitor.sweep_once().await {
        Ok(()) => Outcome::Works {
            detail: "none of daemons that are gone".to_owned(),
        },
        Err(error) => Outcome::Missing {
            why: boxwood_local::chain(&error),
            fix: format!("see what `{} ps --all` says", shared.cli.program()),
        },
    };
    Finding {
        name: "leftovers",
        mechanism: None,
        outcome,
        matters: "boxes of a daemon that was killed must not stay",
    }
}

async fn image(shared: &Shared) -> Finding {
    let name = shared.settings.image.as_str();
    let args = Args::new(["image", "inspect", "--format", "{{.Id}}", "--", name]);
    let outcome = match shared.cli.run(args.0, INFO).await {
        Ok(_) => Outcome::Works {
            detail: format!("`{name}` is there"),
        },
        Err(error) => Outcome::Missing {
            why: format!("`{name}`: {}", boxwood_local::chain(&error)),
            fix: format!("{} pull {name}", shared.cli.program()),
        },
    };
    Finding {
        name: "default image",
        mechanism: None,
        outcome,
        matters: "boxes that name no image start from it; the first one pulls it otherwise",
    }
}
