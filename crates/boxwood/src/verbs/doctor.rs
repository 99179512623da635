//! `boxwood doctor`: what this machine can do for a box.

use boxwood_api::{BackendReport, DoctorReport, FindingState, ToolchainFinding};
use boxwood_client::Client;

use crate::failure::{EXIT_ERROR, Outcome};
use crate::output::Output;
use crate::printable::printable;
use crate::table::{Cell, Table, Tone};

const EXAMPLES: &str = "\
Examples:
  boxwood doctor                                  This machine, as this user; no daemon needed
  boxwood doctor --backend docker                 Everything about one backend
  boxwood doctor --url http://host:5410           What a daemon finds on its machine
  boxwood doctor -o json | jq '.findings[] | select(.state != \"works\")'

Exit codes: 0 boxes can start; 1 none can.";

/// Say what keeps boxes apart here, and what is missing
///
/// Tries every isolation mechanism by using it. For each it says whether it is in force, why it
/// matters and, where it is missing, the command that gets it. Boxes start without what is only
/// missing, and their label says so; they do not start without what is fatal. Below that it lists the
/// backends: which of them can be used, and what the others want; and what MCP servers find here.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Backend to look at; the one that boxes get when left out
    #[arg(long, value_name = "NAME")]
    backend: Option<String>,
}

/// This machine, as this user, without a daemon.
#[cfg(target_os = "linux")]
pub(crate) fn here(args: &Args, output: Output) -> Outcome<u8> {
    use boxwood_server::{Flags, config};
    use boxwood_session::{Sessions, Settings, ShutdownBoxes};

    let config = config::load(&Flags::default())?;
    let rules = boxwood_server::rules(&config)?;
    let usual = rules.profiles.default_profile().backend.as_deref();
    let backends = crate::backend::launch(&config, boxwood_server::PoolUse::OnDemand)?;
    let backends = backends.with_usual(usual);
    let runtime = crate::runtime::for_boxes()?;
    let report = runtime.block_on(async {
        let sessions = Sessions::new(backends, Settings::default());
        let report = sessions.backends().doctor(args.backend.as_deref()).await;
        sessions.shutdown(ShutdownBoxes::Stop).await;
        report
    })?;
    let report = report.with_toolchains(boxwood_server::toolchains());
    show(&report, output)
}

/// A daemon's machine.
pub(crate) async fn there(args: &Args, client: &Client, output: Output) -> Outcome<u8> {
    let report = match &args.backend {
        Some(backend) => client.doctor_of(backend).await?,
        None => client.doctor().await?,
    };
    show(&report, output)
}

/// Prints the report and picks the exit code.
fn show(report: &DoctorReport, output: Output) -> Outcome<u8> {
    if output.is_json() {
        Output::json(report)?;
    } else {
        output.table(&table(report))?;
        for line in advice(report) {
            Output::line(&line)?;
        }
        if !report.backends.is_empty() {
            Output::line("")?;
            output.table(&backends(&report.backends))?;
            for line in backend_advice(&report.backends) {
                Output::line(&line)?;
            }
        }
        if !report.toolchains.is_empty() {
            Output::line("")?;
            output.table(&toolchains(&report.toolchains))?;
            for line in toolchain_advice(&report.toolchains) {
                Output::line(&line)?;
            }
        }
    }
    Ok(if report.usable { 0 } else { EXIT_ERROR })
}

fn table(report: &DoctorReport) -> Table {
    let mut table = Table::new(&["MECHANISM", "IN FORCE", "WHAT WAS SEEN", "WHY IT MATTERS"]);
    for finding in &report.findings {
        let state = match finding.state {
            FindingState::Works => Cell::toned("yes", Tone::Good),
            FindingState::Missing => Cell::toned("no", Tone::Warning),
            FindingState::Fatal => Cell::toned("no, fatal", Tone::Bad),
        };
        table.row([
            finding.name.as_str().into(),
            state,
            finding.detail.as_str().into(),
            finding.matters.as_str().into(),
        ]);
    }
    table
}

/// One line each: which can be used, and why the others cannot.
fn backends(backends: &[BackendReport]) -> Table {
    let mut table = Table::new(&["BACKEND", "USABLE", "WHY NOT"]);
    for backend in backends {
        let usable = match (backend.available, backend.chosen) {
            (true, true) => Cell::toned("yes, used", Tone::Good),
            (true, false) => Cell::toned("yes", Tone::Good),
            (false, _) => Cell::toned("no", Tone::Faint),
        };
        let why_not = backend.reason.as_deref().unwrap_or("-");
        table.row([backend.name.as_str().into(), usable, why_not.into()]);
    }
    table
}

fn backend_advice(backends: &[BackendReport]) -> Vec<String> {
    let mut lines = Vec::new();
    for backend in backends.iter().filter(|backend| !backend.available) {
        let Some(fix) = &backend.fix else { continue };
        lines.push(format!("To use {}:", printable(&backend.name)));
        for line in fix.lines() {
            lines.push(format!("  {}", printable(line)));
        }
    }
    lines
}

/// What MCP servers find; a box needs none of it to start.
fn toolchains(toolchains: &[ToolchainFinding]) -> Table {
    let mut table = Table::new(&["FOR MCP SERVERS", "FOUND", "WHAT NEEDS IT"]);
    for tool in toolchains {
        let found = match &tool.path {
            Some(path) => Cell::toned(path.as_str(), Tone::Good),
            None => Cell::toned("no", Tone::Faint),
        };
        table.row([
            tool.name.as_str().into(),
            found,
            tool.matters.as_str().into(),
        ]);
    }
    table
}

fn toolchain_advice(toolchains: &[ToolchainFinding]) -> Vec<String> {
    let advice = toolchains.iter().filter_map(|tool| {
        let fix = tool.fix.as_deref()?;
        Some(format!(
            "Without {}: {}",
            printable(&tool.name),
            printable(fix)
        ))
    });
    advice.collect()
}

/// The fixes, under the table: commands are too long for a column and are there to be copied.
fn advice(report: &DoctorReport) -> Vec<String> {
    let mut lines = vec![String::new()];
    for finding in &report.findings {
        let Some(fix) = finding.fix.as_deref().filter(|fix| !fix.is_empty()) else {
            continue;
        };
        lines.push(format!("To get {}:", printable(&finding.name)));
        for line in fix.lines() {
            lines.push(format!("  {}", printable(line)));
        }
    }
    let missing = report
        .findings
        .iter()
        .filter(|finding| finding.state != FindingState::Works)
        .count();
    lines.push(match (report.usable, missing) {
        (true, 0) => format!(
            "Boxes can start here ({} backend), and nothing is missing.",
            report.backend
        ),
        (true, count) => format!(
            "Boxes can start here ({} backend), without the {count} that are missing.",
            report.backend
        ),
        (false, _) => format!("No box can start here ({} backend).", report.backend),
    });
    lines
}

#[cfg(test)]
mod tests {
    use boxwood_api::DoctorFinding;

    use super::*;
    use crate::output::Colour;

    fn finding(name: &str, state: FindingState, fix: Option<&str>) -> DoctorFinding {
        DoctorFinding {
            name: name.to_owned(),
            mechanism: None,
            state,
            detail: "seen".to_owned(),
            matters: "it does".to_owned(),
            fix: fix.map(str::to_owned),
        }
    }

    #[test]
    fn a_fix_is_a_command_to_copy() {
        let report = DoctorReport::new(
            "native",
            vec![
                finding("user namespace", FindingState::Works, None),
                finding("cgroup", FindingState::Missing, Some("systemctl --user x")),
            ],
        );
        insta::assert_snapshot!(table(&report).render(Colour::Never), @r"
        MECHANISM        IN FORCE   WHAT WAS SEEN   WHY IT MATTERS
        user namespace   yes        seen            it does
        cgroup           no         seen            it does
        ");
        insta::assert_snapshot!(advice(&report).join("\n"), @r"
        To get cgroup:
          systemctl --user x
        Boxes can start here (native backend), without the 1 that are missing.
        ");
    }

    #[test]
    fn a_backend_that_cannot_be_used_says_why_and_what_helps() {
        let report = |name: &str, available, chosen, fault: Option<(&str, &str)>| BackendReport {
            name: name.to_owned(),
            available,
            chosen,
            reason: fault.map(|(why, _)| why.to_owned()),
            fix: fault.map(|(_, fix)| fix.to_owned()),
            capabilities: None,
            mechanisms: Vec::new(),
        };
        let all = [
            report("native", true, true, None),
            report(
                "docker",
                false,
                false,
                Some(("no daemon", "systemctl start docker")),
            ),
            report("podman", true, false, None),
        ];
        insta::assert_snapshot!(backends(&all).render(Colour::Never), @r"
        BACKEND   USABLE      WHY NOT
        native    yes, used   -
        docker    no          no daemon
        podman    yes         -
        ");
        insta::assert_snapshot!(backend_advice(&all).join("\n"), @r"
        To use docker:
          systemctl start docker
        ");
    }

    #[test]
    fn a_fatal_finding_is_the_last_word() {
        let report = DoctorReport::new("native", vec![finding("x", FindingState::Fatal, None)]);
        assert!(!report.usable);
        assert_eq!(
            advice(&report).last().unwrap(),
            "No box can start here (native backend)."
        );
    }
}
