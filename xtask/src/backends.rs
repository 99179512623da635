//! `cargo xtask backends`: the table of backends, from what the suites saw.

mod page;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::run::{target_dir, workspace_root};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Change nothing; fail when the page says anything else
    #[arg(long)]
    check: bool,
}

/// One backend of the table.
pub(crate) struct Column {
    /// As its suite calls the file.
    file: &'static str,
    /// As people call it.
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

/// Runs only where its package does; a page with it cannot be judged without it.
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
                println!("not judged: {} did not run here", column.title);
                return Ok(());
            }
            println!("left out: {} did not run here", column.title);
            continue;
        }
        bail!(
            "nothing was seen of {}: run `cargo xtask test --only {}` first",
            column.title,
            column.tier
        );
    }
    let path = page_path();
    let old = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let new = page::with_tables(&old, &columns)?;
    if old == new {
        println!("{} says what the suites saw", path.display());
        return Ok(());
    }
    if args.check {
        bail!(
            "{} does not say what the suites saw: run `cargo xtask backends` and look at what changed\n{}",
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
        .with_context(|| format!("{} is not what a suite writes", path.display()))?;
    Ok(Some((column, value)))
}
