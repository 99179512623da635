//! The end of a box that was taken over.

use anyhow::ensure;
use serde_json::json;

use super::{adopt_one, end_of, kept, remember};
use crate::suite::held::request;
use crate::suite::{Bench, Wish};
use crate::{ExitStatus, Process};

pub(super) async fn before(bench: &Bench) -> anyhow::Result<Vec<Process>> {
    let held = bench.start(&Wish::new()).await?;
    let process = held
        .process(kept(request(&["sleep", "3005"]), "sleep"))
        .await?;
    remember(&held, &json!({})).await?;
    Ok(vec![process])
}

pub(super) async fn after(bench: &Bench) -> anyhow::Result<()> {
    let mut found = adopt_one(bench).await?;
    let sleep = found.take("sleep")?;
    found.held.stop().await?;
    ensure!(end_of(&sleep.process.control).await?.status == ExitStatus::BoxGone);
    ensure!(!found.held.sandbox().is_alive());
    let left = bench.backend().left_running().await;
    ensure!(left.is_empty(), "{left:?}");
    Ok(())
}
