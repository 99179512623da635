//! Probes the engine: what works, what is missing, and how to fix it.

use std::sync::Arc;
use std::time::Duration;

use boxwood_api::with_causes;
use boxwood_backend::{Finding, Outcome, Probe, ProbeError};

use crate::Shared;
use crate::args::Args;
use crate::start::unavailable;

/// An engine that needs longer cannot start boxes in time.
const INFO: Duration = Duration::from_secs(10);

pub(crate) async fn probe(shared: Arc<Shared>) -> Result<Probe, ProbeError> {
    let engine = engine(&shared).await;
    let is_available = matches!(engine.outcome, Outcome::Works { .. });
    let mut findings = vec![engine];
    if is_available {
        findings.push(leftovers(&shared).await);
        findings.push(image(&shared).await);
    }
    Ok(Probe { findings })
}

async fn engine(shared: &Shared) -> Finding {
    let args = Args::new(["info", "--format", "{{json .}}"]);
    let outcome = match shared.cli.run(args.0, INFO).await {
        // Docker's client exits successfully and prints that the daemon did not respond.
        Ok(output) if output.contains("\"ServerErrors\":[\"") => fatal(
            shared,
            &crate::cli::CliError::Refused {
                message: "Cannot connect to the Docker daemon".to_owned(),
            },
        ),
        Ok(_) => Outcome::works(format!("`{} info` succeeds", shared.cli.program())),
        Err(error) => fatal(shared, &error),
    };
    Finding {
        name: "engine",
        mechanism: None,
        outcome,
        matters: "it creates the containers of boxes",
    }
}

fn fatal(shared: &Shared, error: &crate::cli::CliError) -> Outcome {
    let error = unavailable(shared, error);
    Outcome::fatal(
        with_causes(&error),
        error
            .hint()
            .unwrap_or("check the output of the engine's `info` command"),
    )
}

async fn leftovers(shared: &Shared) -> Finding {
    let outcome = match shared.cleanup.remove_orphans_once().await {
        Ok(()) => Outcome::works("no containers of dead daemons"),
        Err(error) => Outcome::missing(
            with_causes(&error),
            format!("check the output of `{} ps --all`", shared.cli.program()),
        ),
    };
    Finding {
        name: "leftovers",
        mechanism: None,
        outcome,
        matters: "containers of a killed daemon must be removed",
    }
}

async fn image(shared: &Shared) -> Finding {
    let name = shared.settings.image.as_str();
    let args = Args::new(["image", "inspect", "--format", "{{.Id}}", "--", name]);
    let outcome = match shared.cli.run(args.0, INFO).await {
        Ok(_) => Outcome::works(format!("`{name}` is present")),
        Err(error) => Outcome::missing(
            format!("`{name}`: {}", with_causes(&error)),
            format!("{} pull {name}", shared.cli.program()),
        ),
    };
    Finding {
        name: "default image",
        mechanism: None,
        outcome,
        matters: "boxes without an image start from it; if missing, the first such box pulls it",
    }
}
