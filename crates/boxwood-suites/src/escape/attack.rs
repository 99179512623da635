//! Runs an attack program in a box and reads its verdict.
//!
//! The programs are the Python files in `attacks/`. Each runs after the same prelude and prints one `VERDICT` line.
//! Without that line, or with fewer probes than expected, the case fails: an escape test must not pass because Python
//! is missing.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};

use crate::TestBox;
use boxwood_backend::{SpawnRequest, Stdio};

const PRELUDE: &str = include_str!("attacks/prelude.py");

/// The output of an attack, for error messages and for values that a case reads.
#[derive(Debug)]
pub struct Report {
    pub lines: String,
    pub probes: usize,
}

/// One attack program, by name for messages.
pub(super) struct Attack {
    pub(super) name: &'static str,
    pub(super) program: &'static str,
    /// The program makes at least this many probes.
    pub(super) at_least: usize,
}

macro_rules! attack {
    ($file:literal, $at_least:literal) => {
        $crate::escape::attack::Attack {
            name: $file,
            program: include_str!(concat!("attacks/", $file, ".py")),
            at_least: $at_least,
        }
    };
}
pub(super) use attack;

/// Tells the prelude whether the daemon runs without root, which cannot be detected inside the box.
fn environment() -> BTreeMap<String, String> {
    let ordinary = !rustix::process::geteuid().is_root();
    let variable = ordinary.then(|| ("STARTED_BY_AN_ORDINARY_USER".to_owned(), "1".to_owned()));
    variable.into_iter().collect()
}

impl Attack {
    fn request(&self, args: &[&str], stdio: Stdio) -> SpawnRequest {
        let script = format!("{PRELUDE}\n{}", self.program);
        let program = ["/usr/bin/python3", "-I", "-c", &script];
        SpawnRequest {
            argv: program
                .iter()
                .chain(args)
                .map(|&arg| arg.to_owned())
                .collect(),
            env: environment(),
            cwd: "/workspace".to_owned(),
            stdio,
            keep: None,
        }
    }

    /// Every probe must have been refused.
    pub(super) async fn assert_refused(
        &self,
        target: &TestBox,
        args: &[&str],
    ) -> anyhow::Result<Report> {
        self.assert_refused_on(target, args, Stdio::Output).await
    }

    pub(super) async fn assert_refused_on(
        &self,
        target: &TestBox,
        args: &[&str],
        stdio: Stdio,
    ) -> anyhow::Result<Report> {
        target.assert_isolated().await?;
        let running = target.spawn(self.request(args, stdio)).await?;
        let ran = running.finish_within(Duration::from_mins(2)).await?;
        let lines = ran.out().replace('\r', "");
        let verdict = lines
            .lines()
            .rev()
            .find_map(|line| line.strip_prefix("VERDICT "))
            .with_context(|| {
                format!(
                    "attack `{}` printed no verdict: {:?}, stdout {lines:?}, stderr {:?}",
                    self.name,
                    ran.exit,
                    ran.err()
                )
            })?
            .to_owned();
        let Some(count) = verdict.strip_prefix("held ") else {
            bail!("attack `{}`: {verdict}", self.name)
        };
        let probes: usize = count.trim().parse().context("the verdict's count")?;
        ensure!(
            probes >= self.at_least,
            "attack `{}` made {probes} probes, expected at least {}",
            self.name,
            self.at_least
        );
        Ok(Report { lines, probes })
    }
}
