//! A box after its daemon has gone and another has come: as if nothing had been.
//!
//! Each scenario is a module with two halves, and a daemon carries out each.

mod a_box_that_was_held_goes_on;
mod a_box_without_a_record_is_unfinished;
mod an_adopted_box_stops_like_any_other;
mod files_of_a_program_survive_with_it;
mod input_goes_on_and_ends;
mod mounts_join_as_before;
mod networks_stay_up;
mod output_is_neither_lost_nor_doubled;
mod programs_go_on_and_their_ends_are_told;
mod terminals_stay_open;
mod the_box_is_as_it_was;
mod what_nobody_adopts_goes;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::Value;
use tokio::io::AsyncReadExt as _;

use crate::suite::succession::{Found, Scenario, adopt_all, adopt_one};
use crate::suite::{HeldBox, Offer};
use crate::{Exit, Keep, Process, ProcessControl, SpawnRequest, Stdio};

/// Each name is a module with the two halves.
macro_rules! scenarios {
    ($($name:ident $(needs $($need:ident)+)? $(; $by_hand:ident)?),+ $(,)?) => {
        pub(super) fn scenarios() -> Vec<Scenario> {
            vec![$(Scenario {
                name: stringify!($name),
                needs: &[$($(Offer::$need),+)?],
                may_pass_on: !matches!(stringify!($($by_hand)?), "by_hand"),
                before: |bench| Box::pin($name::before(bench)),
                after: |bench| Box::pin($name::after(bench)),
            }),+]
        }
    };
}

scenarios! {
    programs_go_on_and_their_ends_are_told,
    output_is_neither_lost_nor_doubled,
    input_goes_on_and_ends,
    files_of_a_program_survive_with_it,
    the_box_is_as_it_was needs Files,
    mounts_join_as_before needs LiveMounts,
    networks_stay_up,
    terminals_stay_open needs Terminal,
    an_adopted_box_stops_like_any_other,
    a_box_that_was_held_goes_on,
    what_nobody_adopts_goes; by_hand,
    a_box_without_a_record_is_unfinished; by_hand,
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

async fn remember(held: &HeldBox, facts: &Value) -> anyhow::Result<()> {
    let record = facts.to_string();
    Ok(held.sandbox().remember(record.as_bytes()).await?)
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
