//! Determines whether tools can be used, and if not, the reason and the fix. No tool runs without a box.

use boxwood_api::{AgentState, BackendReport, Status, Unavailable};

use crate::boxes::BoxesError;
use crate::settings::AgentSettings;

/// The state of the runtime.
pub(crate) struct RuntimeState {
    pub(crate) unavailable: Option<Unavailable>,
    /// Its status, if it responded.
    pub(crate) runtime: Option<Status>,
}

impl RuntimeState {
    pub(crate) fn state(&self) -> AgentState {
        self.unavailable
            .as_ref()
            .map_or(AgentState::Ready, |unavailable| unavailable.state)
    }
}

pub(crate) fn disabled() -> Unavailable {
    Unavailable {
        state: AgentState::Disabled,
        reason: "Box runtime is disabled in config (box.enabled = false)".to_owned(),
        fix: "set box.enabled = true, or BOX__ENABLED=true in the environment, and restart"
            .to_owned(),
    }
}

/// The status request failed.
pub(crate) fn unreachable_runtime(error: &BoxesError) -> Unavailable {
    let default_fix = "start the runtime, or correct its address (box.runtime.endpoint; of `boxwood mcp-server`: --url); the next call connects again";
    Unavailable {
        state: AgentState::Unavailable,
        reason: format!("Box runtime is not available: {}", error.message),
        fix: error.hint.clone().unwrap_or_else(|| default_fix.to_owned()),
    }
}

/// Whether the backend of the agent's boxes is available, according to the status alone.
pub(crate) fn has_its_backend(settings: &AgentSettings, status: &Status) -> bool {
    let backend = &status.backend;
    let is_requested = |requested| backend.name.as_deref() == Some(requested);
    backend.available && requested_backend(settings).is_none_or(is_requested)
}

/// Why the backend of the agent's boxes is not available. `None` if it is.
pub(crate) fn backend_trouble(
    settings: &AgentSettings,
    status: &Status,
    backends: &[BackendReport],
) -> Option<Unavailable> {
    let requested = requested_backend(settings);
    let name = requested.or(status.backend.name.as_deref());
    let report = backends
        .iter()
        .find(|report| requested.map_or(report.chosen, |requested| report.name == requested))
        .or_else(|| {
            backends
                .iter()
                .find(|report| Some(report.name.as_str()) == name)
        });
    let usable = match (requested, report) {
        (_, Some(report)) => report.available,
        (None, None) => status.backend.available,
        // The runtime has no backend of this name.
        (Some(_), None) => false,
    };
    (!usable).then(|| unusable(name, report, backends))
}

/// `None` leaves the choice to the runtime.
pub(crate) fn requested_backend(settings: &AgentSettings) -> Option<&str> {
    match settings.backend.trim() {
        "" | "local" | "auto" => None,
        name => Some(name),
    }
}

fn unusable(
    name: Option<&str>,
    report: Option<&BackendReport>,
    all: &[BackendReport],
) -> Unavailable {
    let reason = match name {
        Some(name) => format!("Configured sandbox backend \"{name}\" is unavailable"),
        None => "No supported sandbox backend (native / docker / podman / nsjail) is available"
            .to_owned(),
    };
    let fix = match report {
        Some(report) => fix_of(report),
        None if all.is_empty() => None,
        None => {
            let each: Vec<String> = all
                .iter()
                .filter_map(|report| Some(format!("{}: {}", report.name, fix_of(report)?)))
                .collect();
            (!each.is_empty()).then(|| each.join("; "))
        }
    };
    let fix = fix.unwrap_or_else(|| {
        "run `boxwood doctor` on the machine of the runtime; it names what is missing".to_owned()
    });
    Unavailable {
        state: AgentState::BackendUnusable,
        reason,
        fix,
    }
}

fn fix_of(report: &BackendReport) -> Option<String> {
    match (&report.reason, &report.fix) {
        (Some(why), Some(fix)) => Some(format!("{why}: {fix}")),
        (Some(only), None) | (None, Some(only)) => Some(only.clone()),
        (None, None) => None,
    }
}
