//! `boxwood doctor`: the isolation mechanisms and backends of a machine.

use boxwood_api::{BackendReport, DoctorReport, FindingState, ToolchainFinding};
use boxwood_client::Client;
use boxwood_server::{Flags, PoolUse, config};
use boxwood_session::{Sessions, Settings, ShutdownBoxes};

use crate::failure::{EXIT_ERROR, Outcome};
use crate::output::Output;
use crate::output::printable::printable;
use crate::output::table::{Cell, Table, Tone};
use crate::runtime;

const EXAMPLES: &str = "\
Examples:
  boxwood doctor                                  Check this machine; no daemon needed
  boxwood doctor --backend docker                 Check one backend
  boxwood doctor --url http://host:5410           Check the machine of a daemon
  boxwood doctor -o json | jq '.findings[] | select(.state != \"works\")'

Exit codes: 0 boxes can start; 1 no box can start.";

/// Check which isolation mechanisms and backends work
///
/// Tests every isolation mechanism by using it, and says why it matters and, if it is missing, how to
/// enable it. Boxes start without a mechanism that is only missing, and their isolation label says so;
/// they do not start if the mechanism is fatal. Also lists the backends, with the reason why a backend
/// cannot be used, and the programs that MCP servers need.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Backend to check [default: the one that boxes use]
    #[arg(long, value_name = "NAME")]
    backend: Option<String>,
}

/// Checks this machine, without a daemon.
pub(crate) fn local(args: &Args, output: Output) -> Outcome<u8> {
    let config = config::load(&Flags::default())?;
    let rules = boxwood_server::rules(&config)?;
    let default_backend = rules.profiles.default_profile().backend.as_deref();
    let (backends, runtime) = runtime::for_boxes(&config, PoolUse::OnDemand)?;
    let backends = backends.with_default_backend(default_backend);
    let report = runtime.block_on(async {
        let sessions = Sessions::new(backends, Settings::default());
        let report = sessions.backends().doctor(args.backend.as_deref()).await;
        sessions.shutdown(ShutdownBoxes::Stop).await;
        report
    })?;
    show(
        &report.with_toolchains(boxwood_server::toolchains()),
        output,
    )
}

/// Checks the machine of a daemon.
pub(crate) async fn remote(args: &Args, client: &Client, output: Output) -> Outcome<u8> {
    let report = client.doctor(args.backend.as_deref()).await?;
    show(&report, output)
}

/// Prints the report and returns the exit code.
fn show(report: &DoctorReport, output: Output) -> Outcome<u8> {
    if output.is_json() {
        Output::json(report)?;
    } else {
        section(output, &table(report), &advice(report))?;
        if !report.backends.is_empty() {
            Output::line("")?;
            let advice = backend_advice(&report.backends);
            section(output, &backends(&report.backends), &advice)?;
        }
        if !report.toolchains.is_empty() {
            Output::line("")?;
            let advice = toolchain_advice(&report.toolchains);
            section(output, &toolchains(&report.toolchains), &advice)?;
        }
    }
    Ok(if report.usable { 0 } else { EXIT_ERROR })
}

/// A table, and below it texts that are too long for a column.
fn section(output: Output, table: &Table, advice: &[String]) -> Outcome<()> {
    output.table(table)?;
    if !advice.is_empty() {
        Output::line("")?;
    }
    advice.iter().try_for_each(|line| Output::line(line))
}

fn table(report: &DoctorReport) -> Table {
    let mut table = Table::new(&["MECHANISM", "IN FORCE", "DETAIL", "WHY IT MATTERS"]);
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

fn backends(backends: &[BackendReport]) -> Table {
    let mut table = Table::new(&["BACKEND", "USABLE", "REASON"]);
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
    let unusable = backends.iter().filter(|backend| !backend.available);
    unusable
        .filter_map(|backend| Some(fix("To use", &backend.name, backend.fix.as_deref()?)))
        .flatten()
        .collect()
}

/// Instructions of several lines.
fn fix(purpose: &str, name: &str, fix: &str) -> Vec<String> {
    let lines = fix.lines().map(|line| format!("  {}", printable(line)));
    std::iter::once(format!("{purpose} {}:", printable(name)))
        .chain(lines)
        .collect()
}

/// Programs that MCP servers need. Boxes start without them.
fn toolchains(toolchains: &[ToolchainFinding]) -> Table {
    let mut table = Table::new(&["PROGRAM", "FOUND", "USE"]);
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
    let fixes = toolchains
        .iter()
        .filter_map(|tool| Some(fix("To use", &tool.name, tool.fix.as_deref()?)));
    fixes.flatten().collect()
}

fn advice(report: &DoctorReport) -> Vec<String> {
    let findings = report.findings.iter();
    let fixes = findings.filter_map(|finding| {
        let text = finding.fix.as_deref().filter(|fix| !fix.is_empty())?;
        Some(fix("To get", &finding.name, text))
    });
    let mut lines: Vec<String> = fixes.flatten().collect();
    let findings = report.findings.iter();
    let missing = findings.filter(|finding| finding.state != FindingState::Works);
    let backend = &report.backend;
    lines.push(match (report.usable, missing.count()) {
        (true, 0) => format!("Boxes can start ({backend} backend); all mechanisms work."),
        (true, count) => {
            format!("Boxes can start ({backend} backend); missing mechanisms: {count}.")
        }
        (false, _) => format!("No box can start ({backend} backend)."),
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
    fn a_fix_is_printed_on_its_own_line() {
        let report = DoctorReport::new(
            "native",
            vec![
                finding("user namespace", FindingState::Works, None),
                finding("cgroup", FindingState::Missing, Some("systemctl --user x")),
            ],
        );
        insta::assert_snapshot!(table(&report).render(Colour::Never), @r"
        MECHANISM        IN FORCE   DETAIL   WHY IT MATTERS
        user namespace   yes        seen     it does
        cgroup           no         seen     it does
        ");
        insta::assert_snapshot!(advice(&report).join("\n"), @r"
        To get cgroup:
          systemctl --user x
        Boxes can start (native backend); missing mechanisms: 1.
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
        BACKEND   USABLE      REASON
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
    fn a_fatal_finding_is_in_the_last_line() {
        let report = DoctorReport::new("native", vec![finding("x", FindingState::Fatal, None)]);
        assert!(!report.usable);
        assert_eq!(
            advice(&report).last().unwrap(),
            "No box can start (native backend)."
        );
    }
}
