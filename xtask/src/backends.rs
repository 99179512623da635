//! `cargo xtask backends`: generates the tables of backends from the results of the suites.

mod page;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::run::{target_dir, workspace_root};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Change nothing; fail if the page differs from the results
    #[arg(long)]
    check: bool,
}

/// One backend of the table.
pub(crate) struct Column {
    /// The name of the file that its suite writes, without extension.
    file: &'static str,
    /// The heading in the tables.
    title: &'static str,
    /// The tier that writes it.
    tier: &'static str,
}

const COLUMNS: [Column; 7] = [
    column("native", "native", "boxes"),
    column("native-rootless", "native, rootless", "boxes-rootless"),
    column("docker", "Docker", "docker"),
    column("podman", "Podman", "podman"),
    column("podman-rootless", "Podman, rootless", "podman-rootless"),
    column("nsjail", "nsjail", "nsjail"),
    column("gvisor", "gVisor", "gvisor"),
];

/// gVisor does not run on every host. Without its results the page cannot be checked.
const OPTIONAL_COLUMN: &str = "gvisor";

const BEGIN: &str = "<!-- begin: made by `cargo xtask backends` -->\n";
const END: &str = "<!-- end -->\n";

const fn column(file: &'static str, title: &'static str, tier: &'static str) -> Column {
    Column { file, title, tier }
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let columns = COLUMNS
        .iter()
        .filter_map(|column| read_column(column).transpose())
        .collect::<Result<Vec<_>>>()?;
    for column in &COLUMNS {
        if columns
            .iter()
            .any(|(present, _)| present.file == column.file)
        {
            continue;
        }
        if column.file == OPTIONAL_COLUMN {
            if args.check {
                println!("not checked: there is no result of {}", column.title);
                return Ok(());
            }
            println!("left out: there is no result of {}", column.title);
            continue;
        }
        bail!(
            "there is no result of {}: run `cargo xtask test --only {}` first",
            column.title,
            column.tier
        );
    }
    let path = page_path();
    let old = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let new = page::with_tables(&old, &columns)?;
    if old == new {
        println!("{} is up to date", path.display());
        return Ok(());
    }
    if args.check {
        bail!(
            "{} differs from the results of the suites: run `cargo xtask backends` and check the changes\n{}",
            path.display(),
            page::difference(&old, &new)
        );
    }
    fs::write(&path, new).with_context(|| format!("writing {}", path.display()))?;
    println!("{} was written", path.display());
    Ok(())
}

/// After all suites have run.
pub(crate) fn check() -> Result<()> {
    run(&Args { check: true })
}

/// The directory of the results of suites.
pub(crate) fn matrix_dir() -> PathBuf {
    target_dir().join("matrix")
}

fn page_path() -> PathBuf {
    workspace_root().join("docs/backends.md")
}

fn read_column(column: &'static Column) -> Result<Option<(&'static Column, Value)>> {
    let path = matrix_dir().join(format!("{}.json", column.file));
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("reading {}", path.display())),
    };
    let value = serde_json::from_str(&text)
        .with_context(|| format!("{} is not the result of a suite", path.display()))?;
    Ok(Some((column, value)))
}
