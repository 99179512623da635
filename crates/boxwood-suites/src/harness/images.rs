//! Images for a backend that keeps them under names.
//!
//! Imports the directory of a box specification as an image and replaces it by the name of the image.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, ensure};
use boxwood_api::ImageName;
use tokio::process::Command;
use tokio::sync::Mutex;

use super::host_side::marker;
use crate::{BoxSpec, Fixture, ImagesFrom};

/// By directory, so that two boxes from one directory use the same image.
#[derive(Default)]
pub(crate) struct Imported {
    by_directory: Mutex<BTreeMap<PathBuf, ImageName>>,
}

impl Imported {
    pub(crate) async fn resolve(
        &self,
        fixture: &Fixture,
        spec: &BoxSpec,
    ) -> anyhow::Result<BoxSpec> {
        let Some(directory) = spec.image_directory() else {
            return Ok(spec.clone());
        };
        if fixture.host().images == ImagesFrom::Directories {
            return Ok(spec.clone());
        }
        let mut names = self.by_directory.lock().await;
        if let Some(name) = names.get(directory) {
            return Ok(spec.clone().image_named(name.as_str()));
        }
        let name = ImageName::new(&format!("boxwood-suite:{}", marker("image")))?;
        // A missing directory is not imported, so that the request names an unknown image.
        if directory.exists() {
            import(fixture, &name, directory).await?;
            names.insert(directory.to_owned(), name.clone());
        }
        Ok(spec.clone().image_named(name.as_str()))
    }

    pub(crate) async fn remove(&self, fixture: &Fixture) -> anyhow::Result<()> {
        for (_, name) in std::mem::take(&mut *self.by_directory.lock().await) {
            let removed = fixture.backend().images().remove(&name).await;
            removed.with_context(|| format!("removing image `{name}`"))?;
        }
        Ok(())
    }
}

async fn import(fixture: &Fixture, name: &ImageName, directory: &Path) -> anyhow::Result<()> {
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
    let imported = fixture.backend().images().import(name, Box::new(archive));
    imported
        .await
        .with_context(|| format!("importing {}", directory.display()))?;
    ensure!(tar.wait().await?.success(), "`tar` failed");
    Ok(())
}
