//! Settling.

use anyhow::{Context as _, ensure};
use serde_json::json;

use super::{kept, remember};
use crate::suite::held::request;
use crate::suite::{Bench, Wish};
use crate::{AdoptError, Process};

pub(super) async fn before(bench: &Bench) -> anyhow::Result<Vec<Process>> {
    let held = bench.start(&Wish::new()).await?;
    let process = held
        .process(kept(request(&["sleep", "3006"]), "sleep"))
        .await?;
    remember(&held, &json!({})).await?;
    Ok(vec![process])
}

pub(super) async fn after(bench: &Bench) -> anyhow::Result<()> {
    let left = bench.backend().left_running().await;
    let handle = left.first().context("no box was left")?;
    bench.backend().settle().await;
    let adopted = bench.backend().adopt(handle).await;
    ensure!(matches!(adopted, Err(AdoptError::Gone)), "it was kept");
    let left = bench.backend().left_running().await;
    ensure!(left.is_empty(), "{left:?}");
    Ok(())
}
