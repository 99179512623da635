//! Images for a backend that keeps them under names.
//!
//! Comes in: a wish that names a directory. Goes out: the same wish with the name of an image made
//! from it. Never here: how a backend stores images; they come and go by its own calls.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, ensure};
use boxwood_api::ImageName;
use tokio::process::Command;
use tokio::sync::Mutex;

use super::outside::marker;
use super::{Bench, ImagesFrom, Wish};

/// By directory, so that two boxes from one directory are from one image.
#[derive(Default)]
pub(super) struct Imported {
    by_directory: Mutex<BTreeMap<PathBuf, ImageName>>,
}

impl Imported {
    pub(super) async fn resolve(&self, bench: &Bench, wish: &Wish) -> anyhow::Result<Wish> {
        let Some(directory) = wish.image_directory() else {
            return Ok(wish.clone());
        };
        if bench.host().images == ImagesFrom::Directories {
            return Ok(wish.clone());
        }
        let mut known = self.by_directory.lock().await;
        if let Some(name) = known.get(directory) {
            return Ok(wish.clone().image_named(name.as_str()));
        }
        let name = ImageName::new(&format!("boxwood-suite:{}", marker("image")))?;
        // What is not there is not imported: the wish is then for a name that nobody knows.
        if directory.exists() {
            import(bench, &name, directory).await?;
            known.insert(directory.to_owned(), name.clone());
        }
        Ok(wish.clone().image_named(name.as_str()))
    }

    pub(super) async fn remove(&self, bench: &Bench) -> anyhow::Result<()> {
        for (_, name) in std::mem::take(&mut *self.by_directory.lock().await) {
            let removed = bench.backend().images().remove(&name).await;
            removed.with_context(|| format!("removing image `{name}`"))?;
        }
        Ok(())
    }
}

async fn import(bench: &Bench, name: &ImageName, directory: &Path) -> anyhow::Result<()> {
    let mut tar = Command::new("tar")
        .args(["--numeric-owner", "-c", "-C"])
        .arg(directory)
        .arg(".")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("the suite needs `tar`")?;
    let archive = tar.stdout.take().context("the output of `tar`")?;
    let imported = bench.backend().images().import(name, Box::new(archive));
    imported
        .await
        .with_context(|| format!("importing {}", directory.display()))?;
    ensure!(tar.wait().await?.success(), "`tar` failed");
    Ok(())
}
