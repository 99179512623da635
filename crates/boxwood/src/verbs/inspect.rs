//! `boxwood inspect`: everything about one session, process or command.

use boxwood_api::{
    ExecDetail, MountMode, ProcessId, ProcessInfo, SessionDetail, SessionId, SessionInfo,
};
use boxwood_client::Client;

use super::{ago, process_id, session_id, wire_word};
use crate::failure::Outcome;
use crate::output::Output;
use crate::table::{Cell, Table, Tone};

const EXAMPLES: &str = "\
Examples:
  boxwood inspect build
  boxwood inspect tools web                     One managed process
  boxwood inspect --exec 1718 build             One command, with its result once it has ended
  boxwood inspect build -o json | jq .isolation";

/// Show everything about a session, a managed process or a command
///
/// Limits, mounts, and the isolation label: what really keeps the box apart, what this machine could
/// not give, and why.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Name of the session
    #[arg(value_parser = session_id)]
    session: SessionId,

    /// Name of a managed process
    #[arg(value_parser = process_id)]
    process: Option<ProcessId>,

    /// Number of a command, as `boxwood ps --execs` shows it
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
    let root = if session.read_only_rootfs {
        "read-only"
    } else {
        "writable"
    };
    table.fact("root", root);
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
    table.fact("persistent", if session.persistent { "yes" } else { "no" });
    table.fact(
        "created",
        format!("{} ({})", session.created_at, ago(session.created_at)),
    );
    table.fact(
        "used",
        format!("{} ({})", session.last_used_at, ago(session.last_used_at)),
    );
    if let Some(adopted_at) = session.adopted_at {
        table.fact("taken over", format!("{adopted_at} ({})", ago(adopted_at)));
    }
    if session.frozen {
        table.fact("frozen", "yes, until the next call");
    }
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
            format!("{}: {}", process.process_id, super::ps::command(process)),
        );
    }
    for exec in &detail.execs {
        table.fact(
            "command",
            format!("{}: {}", super::ps::exec_name(exec), exec.command),
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
    table.row([
        Cell::toned("status", Tone::Faint),
        super::ps::exec_status(exec),
    ]);
    table.fact("attached", if exec.attached { "yes" } else { "no" });
    table.fact("resumable", if exec.resumable { "yes" } else { "no" });
    table.fact(
        "started",
        format!("{} ({})", exec.started_at, ago(exec.started_at)),
    );
    let written = format!(
        "{} bytes of stdout, {} of stderr",
        exec.stdout_bytes, exec.stderr_bytes
    );
    table.fact("written", written);
    if let Some(result) = &detail.result {
        for line in result.stdout.lines() {
            table.fact("stdout", line);
        }
        for line in result.stderr.lines() {
            table.fact("stderr", line);
        }
    }
    table
}

fn of_process(process: &ProcessInfo) -> Table {
    let mut table = Table::of_facts();
    table.fact("session", process.session_id.as_str());
    table.fact("process", process.process_id.as_str());
    table.row([
        Cell::toned("status", Tone::Faint),
        super::ps::status(process),
    ]);
    table.fact("command", super::ps::command(process));
    table.fact("directory", &process.cwd);
    if !process.env_keys.is_empty() {
        table.fact("environment", process.env_keys.join(", "));
    }
    table.fact("attached", if process.attached { "yes" } else { "no" });
    table.fact(
        "started",
        format!("{} ({})", process.started_at, ago(process.started_at)),
    );
    if let Some(exited_at) = process.exited_at {
        table.fact("exited", format!("{exited_at} ({})", ago(exited_at)));
    }
    for line in process.stderr_preview.lines() {
        table.fact("stderr", line);
    }
    table
}

/// Which backend, by which runtime where that was chosen, and what the box is called there.
fn backend(session: &SessionInfo) -> String {
    let runtime = session.isolation.runtime.as_deref();
    let runtime = runtime.map_or_else(String::new, |runtime| format!(" ({runtime})"));
    format!(
        "{}{runtime} {}",
        session.backend_name, session.backend_session_id
    )
}
