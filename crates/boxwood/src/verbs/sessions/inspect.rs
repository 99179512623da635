//! `boxwood inspect`: everything about one session, process or command.

use boxwood_api::{
    ExecDetail, MountMode, ProcessId, ProcessInfo, SessionDetail, SessionId, SessionInfo,
};
use boxwood_client::Client;

use crate::failure::Outcome;
use crate::output::table::{Cell, Table, Tone};
use crate::output::{Output, time, wire_word, yes_no};
use crate::verbs::processes::ps;
use crate::verbs::system::root;

const EXAMPLES: &str = "\
Examples:
  boxwood inspect build
  boxwood inspect tools web                     Show a managed process
  boxwood inspect --exec 1718 build             Show a command, and its result if it has ended
  boxwood inspect build -o json | jq .isolation";

/// Show everything about a session, a managed process or a command
///
/// Shows limits, mounts and the isolation label: the mechanisms that isolate the box, and those that are
/// missing on this machine, with the reason.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Name of the session
    session: SessionId,

    /// Name of a managed process
    process: Option<ProcessId>,

    /// Number of a command, as shown by `boxwood ps --execs`
    #[arg(long, value_name = "ID", conflicts_with = "process")]
    exec: Option<u64>,
}

pub(crate) async fn main(args: &Args, client: &Client, output: Output) -> Outcome<()> {
    if let Some(exec_id) = args.exec {
        let detail = client.exec_detail(&args.session, exec_id).await?;
        output.table_or(&detail, || of_exec(&detail))
    } else if let Some(id) = &args.process {
        let process = client.process(&args.session, id).await?;
        output.table_or(&process, || of_process(&process))
    } else {
        let detail = client.session(&args.session).await?;
        output.table_or(&detail, || of_session(&detail))
    }
}

fn of_session(detail: &SessionDetail) -> Table {
    let session = &detail.session;
    let mut table = Table::of_facts();
    table.fact("session", session.session_id.as_str());
    table.fact("box", backend(session));
    table.fact("profile", &session.profile);
    table.fact("configuration", &detail.config_hash);
    table.fact("image", &session.image);
    table.fact("root", root(session.read_only_rootfs));
    table.fact(
        "network",
        format!(
            "{} ({})",
            wire_word(&session.network),
            wire_word(&session.isolation.network)
        ),
    );
    table.fact("cpus", session.cpus.to_string());
    table.fact("memory", format!("{} MiB", session.memory_mb));
    table.fact("processes", format!("at most {}", session.pids_limit));
    table.fact("persistent", yes_no(session.persistent));
    table.fact("created", time(session.created_at));
    table.fact("used", time(session.last_used_at));
    table.maybe_fact("adopted", session.adopted_at.map(time));
    table.maybe_fact(
        "frozen",
        session.frozen.then_some("yes, until the next request"),
    );
    table.fact("workspace", workspace(detail));
    for mount in &session.extra_mounts {
        table.fact(
            "mount",
            format!(
                "{} from {} ({})",
                mount.mount_path,
                mount.host_path,
                wire_word(&mount.mode)
            ),
        );
    }
    for process in detail.managed_processes.values() {
        table.fact(
            "process",
            format!("{}: {}", process.process_id, ps::command(process)),
        );
    }
    for exec in &detail.execs {
        table.fact(
            "command",
            format!("{}: {}", ps::exec_name(exec), exec.command),
        );
    }
    for mechanism in &session.isolation.in_force {
        table.row([
            Cell::toned("in force", Tone::Good),
            mechanism.as_str().into(),
        ]);
    }
    for missing in &session.isolation.missing {
        let text = format!("{}: {}", missing.mechanism, missing.why);
        table.row([Cell::toned("missing", Tone::Warning), text.into()]);
    }
    table
}

fn workspace(detail: &SessionDetail) -> String {
    let session = &detail.session;
    match (&session.host_path, session.host_path_mode) {
        (Some(host_path), mode @ (MountMode::Ro | MountMode::Rw)) => {
            format!(
                "{} from {host_path} ({})",
                session.mount_path,
                wire_word(&mode)
            )
        }
        _ => format!("{} (private)", session.mount_path),
    }
}

fn of_exec(detail: &ExecDetail) -> Table {
    let exec = &detail.info;
    let mut table = Table::of_facts();
    table.fact("session", exec.session_id.as_str());
    table.fact("command", &exec.command);
    table.fact("number", exec.exec_id.to_string());
    table.row([Cell::toned("status", Tone::Faint), ps::exec_status(exec)]);
    table.fact("attached", yes_no(exec.attached));
    table.fact("resumable", yes_no(exec.resumable));
    table.fact("started", time(exec.started_at));
    let written = format!(
        "{} bytes of stdout, {} of stderr",
        exec.stdout_bytes, exec.stderr_bytes
    );
    table.fact("written", written);
    if let Some(result) = &detail.result {
        table.fact_lines("stdout", &result.stdout);
        table.fact_lines("stderr", &result.stderr);
    }
    table
}

fn of_process(process: &ProcessInfo) -> Table {
    let mut table = Table::of_facts();
    table.fact("session", process.session_id.as_str());
    table.fact("process", process.process_id.as_str());
    table.row([Cell::toned("status", Tone::Faint), ps::status(process)]);
    table.fact("command", ps::command(process));
    table.fact("directory", &process.cwd);
    table.maybe_fact("environment", Some(process.env_keys.join(", ")));
    table.fact("attached", yes_no(process.attached));
    table.fact("started", time(process.started_at));
    table.maybe_fact("exited", process.exited_at.map(time));
    table.fact_lines("stderr", &process.stderr_preview);
    table
}

/// The backend, its runtime if one was chosen, and the name of the box there.
fn backend(session: &SessionInfo) -> String {
    let runtime = session.isolation.runtime.as_deref();
    let runtime = runtime.map_or_else(String::new, |runtime| format!(" ({runtime})"));
    format!(
        "{}{runtime} {}",
        session.backend_name, session.backend_session_id
    )
}
