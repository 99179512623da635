//! What a workspace takes up: its files on the host, and what its boxes hold for themselves.
//!
//! Comes in: a placement. Goes out: the report that the platform draws. Never here: other
//! workspaces' directories or boxes.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use boxwood_api::{ExecStatus, SessionDetail, SessionId, SpecRequest};
use futures_util::StreamExt as _;
use serde_json::{Value, json};

use super::local::Local;
use super::tenancy::Placement;
use super::walk::{Usage, measure};
use crate::http::App;
use crate::langbot::{Fault, calls};

/// Boxes that are looked into at the same time.
const AT_ONCE: usize = 4;

/// For one box to count its files.
const PATIENCE_SEC: u64 = 15;

/// What is looked at in a box. The places are those of our boxes.
const AREAS: [Area; 3] = [
    Area {
        key: "session_workspaces",
        path: "/workspace",
    },
    Area {
        key: "session_caches",
        path: "/home/box/.cache",
    },
    Area {
        key: "session_temp",
        path: "/tmp",
    },
];

struct Area {
    key: &'static str,
    path: &'static str,
}

pub(crate) async fn analyse(
    app: &Arc<App>,
    local: Local,
    placement: Placement,
) -> Result<Value, Fault> {
    let mut directories = on_host(local, placement).await?;
    let sessions = sessions_of(app, placement);
    let processes: usize = sessions.iter().map(|it| it.managed_processes.len()).sum();
    let looks: Vec<_> = sessions
        .iter()
        .map(|session| in_box(Arc::clone(app), session.session.session_id.clone()))
        .collect();
    let reports: Vec<_> = futures_util::stream::iter(looks)
        .buffered(AT_ONCE)
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

/// Some of it is what boxes say of themselves.
fn total(directories: &[Value]) -> u64 {
    directories
        .iter()
        .filter(|directory| directory["kind"] == "root")
        .filter_map(|directory| directory["size_bytes"].as_u64())
        .fold(0, u64::saturating_add)
}

pub(crate) fn sessions_of(app: &App, placement: Placement) -> Vec<SessionDetail> {
    app.sessions
        .list()
        .into_iter()
        .filter(|info| placement.owns(&info.session_id))
        // One that went meanwhile takes up nothing.
        .filter_map(|info| app.sessions.detail(&info.session_id).ok())
        .collect()
}

/// A workspace whose place is not set up has nothing on the host.
async fn on_host(local: Local, placement: Placement) -> Result<Vec<Value>, Fault> {
    let looking = tokio::task::spawn_blocking(move || {
        let workspace = match local.workspace_path(placement.workspace()) {
            Ok(path) => path,
            Err(fault) if fault.class() == "BoxReadinessError" => return Ok(Vec::new()),
            Err(fault) => return Err(fault),
        };
        let details = [("mcp", ".mcp"), ("inbox", "inbox"), ("outbox", "outbox")];
        let whole = entry("workspace", &workspace, "root", None);
        let parts = details
            .into_iter()
            .map(|(key, name)| entry(key, &workspace.join(name), "detail", Some("workspace")));
        Ok(std::iter::once(whole).chain(parts).collect())
    });
    looking.await.unwrap_or_else(|error| {
        tracing::error!(%error, "measuring a workspace failed");
        Err(Fault::new(
            "BoxError",
            "the workspace could not be measured",
        ))
    })
}

fn entry(key: &str, path: &Path, kind: &str, parent: Option<&str>) -> Value {
    let text = path.display().to_string();
    described(key, &text, kind, parent, &measure(path), "runtime_host")
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

/// Asks the box itself: what is in its private areas can only be seen from inside.
async fn in_box(app: Arc<App>, session: SessionId) -> Report {
    let request = SpecRequest {
        session_id: Some(session.clone()),
        cmd: script(),
        workdir: Some("/".to_owned()),
        timeout_sec: Some(PATIENCE_SEC),
        ..SpecRequest::default()
    };
    match calls::exec_existing(&app, request).await {
        Ok(result) if result.status == ExecStatus::Completed && result.exit_code == Some(0) => {
            Some(read(&result.stdout))
        }
        Ok(_) => None,
        Err(fault) => {
            tracing::debug!(%session, %fault, "a box could not be measured");
            None
        }
    }
}

/// Answers `key exists kibibytes files` for every area, in their order.
fn script() -> String {
    let mut script = String::new();
    for Area { key, path } in &AREAS {
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

/// What a box says of itself is taken as numbers and nothing else.
fn read(output: &str) -> [Usage; AREAS.len()] {
    let mut usages = [Usage::default(); AREAS.len()];
    for line in output.lines() {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let [key, exists, kibibytes, files] = words[..] else {
            continue;
        };
        let Some(place) = AREAS.iter().position(|area| area.key == key) else {
            continue;
        };
        let (Ok(kibibytes), Ok(files)) = (kibibytes.parse::<u64>(), files.parse()) else {
            continue;
        };
        usages[place] = Usage {
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
    let mut totals = [Usage {
        error_count: failed,
        ..Usage::default()
    }; AREAS.len()];
    let mut managed = totals[0];
    let (mut included, mut with_process) = (0, 0);
    for (session, report) in sessions.iter().zip(reports) {
        let Some(report) = report else {
            continue;
        };
        included += 1;
        // A mounted workspace is the host's, and counted there.
        let mounted = session.session.host_path.is_some();
        for (place, (total, usage)) in totals.iter_mut().zip(report).enumerate() {
            if place == 0 && mounted {
                continue;
            }
            total.add(usage);
        }
        if !session.managed_processes.is_empty() && !mounted {
            with_process += 1;
            managed.add(&report[0]);
        }
    }
    let scope = "sandbox_sessions";
    let mut entries: Vec<Value> = AREAS
        .iter()
        .zip(&totals)
        .map(|(area, usage)| {
            let path = format!("{} ({included} sandbox sessions)", area.path);
            described(area.key, &path, "root", None, usage, scope)
        })
        .collect();
    if with_process > 0 {
        let path = format!(
            "{} ({with_process} managed-process sessions)",
            AREAS[0].path
        );
        let (key, parent) = ("managed_process_workspaces", Some(AREAS[0].key));
        entries.push(described(key, &path, "detail", parent, &managed, scope));
    }
    entries
}

impl Usage {
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
    fn a_box_can_say_numbers_and_nothing_else() {
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
    fn a_box_that_lies_about_its_size_does_no_harm() {
        let root = |bytes: u64| json!({"kind": "root", "size_bytes": bytes});
        assert_eq!(
            total(&[root(1), json!({"kind": "detail", "size_bytes": 9}), root(2)]),
            3
        );
        assert_eq!(total(&[root(u64::MAX), root(1), root(u64::MAX)]), u64::MAX);
    }
}
