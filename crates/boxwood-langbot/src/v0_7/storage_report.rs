//! Disk usage of a workspace: its files on the host and in its boxes.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use boxwood_api::{ExecStatus, SessionDetail, SessionId, SpecRequest};
use futures_util::StreamExt as _;
use serde_json::{Value, json};

use super::files::local_dirs::LocalDirs;
use super::placement::Placement;
use crate::error::blocking;
use crate::{ActionError, LangBot, session_calls};

/// Boxes that are measured concurrently.
const CONCURRENCY: usize = 4;

/// Time limit for one box.
const TIMEOUT_SEC: u64 = 15;

/// The measured directories of a box, with their names in the report.
const AREAS: [(&str, &str); 3] = [
    ("session_workspaces", "/workspace"),
    ("session_caches", "/home/box/.cache"),
    ("session_temp", "/tmp"),
];

pub(crate) async fn analyse(
    langbot: &Arc<LangBot>,
    local: LocalDirs,
    placement: Placement,
) -> Result<Value, ActionError> {
    let mut directories = on_host(local, placement).await?;
    let sessions = sessions_of(langbot, placement);
    let processes: usize = sessions.iter().map(|it| it.managed_processes.len()).sum();
    let measurements: Vec<_> = sessions
        .iter()
        .map(|session| in_box(Arc::clone(langbot), session.session.session_id.clone()))
        .collect();
    let reports: Vec<_> = futures_util::stream::iter(measurements)
        .buffered(CONCURRENCY)
        .collect()
        .await;
    directories.extend(in_boxes(&sessions, &reports));
    Ok(json!({
        "size_bytes": total(&directories),
        "directories": directories,
        "active_sessions": sessions.len(),
        "managed_processes": processes,
    }))
}

/// Saturating, because boxes report part of the numbers.
fn total(directories: &[Value]) -> u64 {
    directories
        .iter()
        .filter(|directory| directory["kind"] == "root")
        .filter_map(|directory| directory["size_bytes"].as_u64())
        .fold(0, u64::saturating_add)
}

pub(crate) fn sessions_of(langbot: &LangBot, placement: Placement) -> Vec<SessionDetail> {
    langbot
        .sessions
        .list()
        .into_iter()
        .filter(|info| placement.owns(&info.session_id))
        // Deleted sessions are skipped.
        .filter_map(|info| langbot.sessions.detail(&info.session_id).ok())
        .collect()
}

/// Without a configured directory there are no files on the host.
async fn on_host(local: LocalDirs, placement: Placement) -> Result<Vec<Value>, ActionError> {
    blocking("the workspace could not be measured", move || {
        let workspace = match local.workspace_path(placement.workspace) {
            Ok(path) => path,
            Err(error) if error.class() == "BoxReadinessError" => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let entry = |key, path: &Path, kind, parent| {
            let (text, usage) = (path.display().to_string(), Usage::of(path));
            described(key, &text, kind, parent, &usage, "runtime_host")
        };
        let mut entries = vec![entry("workspace", &workspace, "root", None)];
        for (key, name) in [("mcp", ".mcp"), ("inbox", "inbox"), ("outbox", "outbox")] {
            let path = workspace.join(name);
            entries.push(entry(key, &path, "detail", Some("workspace")));
        }
        Ok(entries)
    })
    .await
}

fn described(
    key: &str,
    path: &str,
    kind: &str,
    parent: Option<&str>,
    usage: &Usage,
    scope: &str,
) -> Value {
    let mut entry = json!({
        "key": key,
        "path": path,
        "kind": kind,
        "exists": usage.exists,
        "size_bytes": usage.size_bytes,
        "file_count": usage.file_count,
        "error_count": usage.error_count,
    });
    if let Some(parent) = parent {
        entry["parent_key"] = parent.into();
    }
    entry["scope"] = scope.into();
    entry
}

type Report = Option<[Usage; AREAS.len()]>;

/// Runs a command in the box, because its private directories are visible only from inside.
async fn in_box(langbot: Arc<LangBot>, session: SessionId) -> Report {
    let request = SpecRequest {
        session_id: Some(session.clone()),
        cmd: script(),
        workdir: Some("/".to_owned()),
        timeout_sec: Some(TIMEOUT_SEC),
        ..SpecRequest::default()
    };
    match session_calls::exec_existing(&langbot, request).await {
        Ok(result) if result.status == ExecStatus::Completed && result.exit_code == Some(0) => {
            Some(read(&result.stdout))
        }
        Ok(_) => None,
        Err(error) => {
            tracing::debug!(%session, %error, "failed to measure a box");
            None
        }
    }
}

/// Prints `key exists kibibytes files` for every area.
fn script() -> String {
    let mut script = String::new();
    for (key, path) in AREAS {
        // Writing to a string cannot fail.
        let _ = writeln!(
            script,
            "if [ -e {path} ]; then \
             echo {key} 1 $(du -skx {path} 2>/dev/null | cut -f1) \
             $(find {path} -xdev -type f 2>/dev/null | wc -l); \
             else echo {key} 0 0 0; fi"
        );
    }
    script
}

/// Accepts nothing but numbers, because the output is untrusted.
fn read(output: &str) -> [Usage; AREAS.len()] {
    let mut usages = [Usage::default(); AREAS.len()];
    for line in output.lines() {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let [key, exists, kibibytes, files] = fields[..] else {
            continue;
        };
        let Some(index) = AREAS.iter().position(|(name, _)| *name == key) else {
            continue;
        };
        let (Ok(kibibytes), Ok(files)) = (kibibytes.parse::<u64>(), files.parse()) else {
            continue;
        };
        usages[index] = Usage {
            exists: exists == "1",
            size_bytes: kibibytes.saturating_mul(1024),
            file_count: files,
            error_count: 0,
        };
    }
    usages
}

fn in_boxes(sessions: &[SessionDetail], reports: &[Report]) -> Vec<Value> {
    if sessions.is_empty() {
        return Vec::new();
    }
    let failed = reports.iter().filter(|report| report.is_none()).count() as u64;
    let unmeasured = Usage {
        error_count: failed,
        ..Usage::default()
    };
    let (mut totals, mut managed) = ([unmeasured; AREAS.len()], unmeasured);
    let (mut included, mut with_process) = (0, 0);
    for (session, report) in sessions.iter().zip(reports) {
        let Some([workspace, caches, temp]) = report else {
            continue;
        };
        included += 1;
        totals[1].add(caches);
        totals[2].add(temp);
        // A mounted workspace is already counted on the host.
        if session.session.host_path.is_some() {
            continue;
        }
        totals[0].add(workspace);
        if !session.managed_processes.is_empty() {
            with_process += 1;
            managed.add(workspace);
        }
    }
    let scope = "sandbox_sessions";
    let mut entries: Vec<Value> = AREAS
        .iter()
        .zip(&totals)
        .map(|((key, path), usage)| {
            let path = format!("{path} ({included} sandbox sessions)");
            described(key, &path, "root", None, usage, scope)
        })
        .collect();
    if with_process > 0 {
        let (parent, path) = AREAS[0];
        let path = format!("{path} ({with_process} managed-process sessions)");
        let key = "managed_process_workspaces";
        entries.push(described(
            key,
            &path,
            "detail",
            Some(parent),
            &managed,
            scope,
        ));
    }
    entries
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Usage {
    exists: bool,
    size_bytes: u64,
    file_count: u64,
    error_count: u64,
}

impl Usage {
    /// Blocks.
    fn of(path: &Path) -> Self {
        if path.symlink_metadata().is_err() {
            return Self::default();
        }
        let usage = boxwood_sys::tree::usage(path, u64::MAX);
        Self {
            exists: true,
            size_bytes: usage.file_bytes,
            file_count: usage.files,
            error_count: usage.errors,
        }
    }

    fn add(&mut self, other: &Self) {
        self.exists |= other.exists;
        self.size_bytes = self.size_bytes.saturating_add(other.size_bytes);
        self.file_count = self.file_count.saturating_add(other.file_count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_are_read_from_the_output() {
        let report = read(
            "session_temp 1 8 2\nnonsense\nsession_temp 1 x 2\nsession_caches 0 0 0\n\
             session_workspaces 1 99999999999999999999 1\nother 1 1 1\n",
        );
        assert_eq!(report[0], Usage::default());
        assert_eq!(report[1], Usage::default());
        assert_eq!((report[2].size_bytes, report[2].file_count), (8192, 2));
        let huge = read(&format!("session_temp 1 {} 1", u64::MAX));
        assert_eq!(huge[2].size_bytes, u64::MAX);
    }

    #[test]
    fn huge_reported_sizes_saturate() {
        let root = |bytes: u64| json!({"kind": "root", "size_bytes": bytes});
        assert_eq!(
            total(&[root(1), json!({"kind": "detail", "size_bytes": 9}), root(2)]),
            3
        );
        assert_eq!(total(&[root(u64::MAX), root(1), root(u64::MAX)]), u64::MAX);
    }
}
