//! A daemon that goes while a box stands still for it.

use anyhow::ensure;
use serde_json::json;

use super::{adopt_one, end_of, kept, remember};
use crate::suite::held::request;
use crate::suite::{Bench, Wish};
use crate::{ExitStatus, Process, Scope};

pub(super) async fn before(bench: &Bench) -> anyhow::Result<Vec<Process>> {
    let held = bench.start(&Wish::new()).await?;
    let process = held
        .process(kept(request(&["sleep", "3006"]), "sleep"))
        .await?;
    remember(&held, &json!({})).await?;
    held.sandbox().hold().await?;
    Ok(vec![process])
}

pub(super) async fn after(bench: &Bench) -> anyhow::Result<()> {
    let mut found = adopt_one(bench).await?;
    // As is done with every box that is taken over.
    found.held.sandbox().thaw().await?;
    let sleep = found.take("sleep")?;
    // One that stands still does not hear it.
    sleep.process.control.signal(15, Scope::Process).await?;
    let exit = end_of(&sleep.process.control).await?;
    ensure!(exit.status == ExitStatus::Signal(15), "{exit:?}");
    found.held.is_well().await
}
