//! A box after its daemon has ended and the next one has adopted it.
//!
//! Each scenario has two halves, `_before` and `_after`, which run in different daemons.

mod boxes;
mod processes;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::Value;
use tokio::io::AsyncReadExt as _;

use crate::harness::handover::{Found, Scenario, adopt_all, adopt_one};
use crate::{Feature, TestBox};
use boxwood_backend::{Exit, Keep, Process, ProcessControl, SpawnRequest, Stdio};

/// Lists each scenario with its two halves. `once` means that no daemon in between may adopt the boxes.
macro_rules! scenarios {
    ($($name:ident $(needs $need:ident)? $([$once:ident])?: $before:path, $after:path;)+) => {
        pub(super) fn scenarios() -> Vec<Scenario> {
            vec![$(Scenario {
                name: stringify!($name),
                needs: &[$(Feature::$need)?],
                allows_intermediate_daemon: !matches!(stringify!($($once)?), "once"),
                before: |fixture| Box::pin($before(fixture)),
                after: |fixture| Box::pin($after(fixture)),
            }),+]
        }
    };
}

scenarios! {
    processes_keep_running_and_report_exits: processes::processes_before, processes::processes_after;
    output_is_neither_lost_nor_duplicated: processes::output_before, processes::output_after;
    stdin_stays_connected_and_closes: processes::stdin_before, processes::stdin_after;
    kept_files_survive_with_their_process: processes::kept_files_before, processes::kept_files_after;
    terminals_stay_open needs Terminal: processes::terminal_before, processes::terminal_after;
    identity_files_and_limits_are_unchanged needs Files: boxes::identity_before, boxes::identity_after;
    mounts_can_be_added needs LiveMounts: boxes::mounts_before, boxes::mounts_after;
    networks_stay_up: boxes::networks_before, boxes::networks_after;
    an_adopted_box_can_be_stopped: boxes::stop_before, boxes::stop_after;
    a_frozen_box_resumes: boxes::freeze_before, boxes::freeze_after;
    an_unadopted_box_is_removed [once]: boxes::removal_before, boxes::removal_after;
    a_box_without_a_record_is_unfinished [once]: boxes::unrecorded_before, boxes::unrecorded_after;
}

fn kept(mut request: SpawnRequest, note: &str) -> SpawnRequest {
    request.keep = Some(Keep {
        note: note.as_bytes().to_vec(),
        files: Vec::new(),
    });
    request
}

fn with_pipes(mut request: SpawnRequest) -> SpawnRequest {
    request.stdio = Stdio::Pipes;
    request
}

async fn remember(test_box: &TestBox, facts: &Value) -> anyhow::Result<()> {
    let record = facts.to_string();
    Ok(test_box.sandbox().remember(record.as_bytes()).await?)
}

fn facts(found: &Found) -> anyhow::Result<Value> {
    serde_json::from_slice(&found.record).context("the record is not what was remembered")
}

async fn end_of(control: &Arc<dyn ProcessControl>) -> anyhow::Result<Exit> {
    tokio::time::timeout(Duration::from_secs(20), control.wait())
        .await
        .context("the program does not end")
}

async fn line(process: &mut Process) -> anyhow::Result<String> {
    let mut line = Vec::new();
    let reading = async {
        while line.last() != Some(&b'\n') {
            line.push(process.stdout.read_u8().await?);
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(Duration::from_secs(20), reading)
        .await
        .context("no line came")??;
    Ok(String::from_utf8(line)?.trim().to_owned())
}

async fn rest(process: &mut Process) -> anyhow::Result<Vec<u8>> {
    let mut rest = Vec::new();
    tokio::time::timeout(
        Duration::from_secs(30),
        process.stdout.read_to_end(&mut rest),
    )
    .await
    .context("no end of its output")??;
    Ok(rest)
}

const COMMANDS: &str = "cat /proc/[0-9]*/cmdline | tr '\\0' ' '";
