//! A daemon that was killed before anybody was told of the box.

use anyhow::{Context as _, ensure};

use crate::suite::{Bench, Wish};
use crate::{AdoptError, Process};

pub(super) async fn before(bench: &Bench) -> anyhow::Result<Vec<Process>> {
    bench.start(&Wish::new()).await?;
    Ok(Vec::new())
}

pub(super) async fn after(bench: &Bench) -> anyhow::Result<()> {
    let left = bench.backend().left_running().await;
    let handle = left.first().context("no box was left")?;
    let adopted = bench.backend().adopt(handle).await;
    ensure!(matches!(adopted, Err(AdoptError::Unfinished)), "adopted");
    bench.backend().settle().await;
    let adopted = bench.backend().adopt(handle).await;
    ensure!(matches!(adopted, Err(AdoptError::Gone)), "it was kept");
    Ok(())
}
