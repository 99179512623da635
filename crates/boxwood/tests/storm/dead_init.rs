//! The init of a box is killed: its session ends with a reason, and no other session is affected.

use anyhow::{Context as _, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::ask::{Answer, ask};
use crate::instance::Instance;
use crate::leftovers::survive;
use crate::load::output;
use crate::random::kills;
use crate::storm::{session_name, spared};

#[test]
fn a_killed_init_takes_its_session_and_leaves_nothing_behind() {
    let instance = Instance::new();
    survive("dead_init", &instance, async |storm, mut daemon| {
        let port = instance.port();
        for number in 0..usize::try_from(kills(20))?.min(spared()) {
            let session = session_name(number);
            let incarnation = storm.incarnations.get(&session).copied();
            let incarnation = incarnation.context("more kills than sessions")?;
            let init = init_of(port, &session).await?;
            storm.doom(&session);
            // While a daemon runs, and while none does.
            let early = number % 2 == 0;
            if early {
                kill_process(init, Signal::KILL)?;
            }
            storm.kill(daemon).await?;
            if !early {
                kill_process(init, Signal::KILL)?;
            }
            daemon = storm.next().await?;
            storm.lost(&session).await?;
            check_error(port, &session, incarnation).await?;
        }
        Ok(daemon)
    });
}

/// PID 1 of the namespace in which a command of the session runs.
async fn init_of(port: u16, session: &str) -> anyhow::Result<Pid> {
    let namespace = output(port, session, "readlink /proc/self/ns/pid").await?;
    let processes = std::fs::read_dir("/proc")?.flatten();
    let found = processes.map(|entry| entry.path()).find(|process| {
        let link = std::fs::read_link(process.join("ns/pid"));
        let status = std::fs::read_to_string(process.join("status")).unwrap_or_default();
        let mut lines = status.lines();
        link.is_ok_and(|link| link.to_string_lossy() == namespace.trim())
            && lines.any(|line| line.starts_with("NSpid:") && line.ends_with("\t1"))
    });
    let found = found.with_context(|| format!("{namespace} has no PID 1"))?;
    let pid = found
        .file_name()
        .and_then(|name| name.to_str()?.parse().ok());
    pid.and_then(Pid::from_raw).context("a pid")
}

/// A request for the ended incarnation is refused with the reason.
async fn check_error(port: u16, session: &str, incarnation: u64) -> anyhow::Result<()> {
    let path = format!("/v1/sessions/{session}?incarnation={incarnation}");
    match ask(port, "GET", &path, None).await? {
        Answer::Response(410, body) => {
            let text = body.to_string();
            ensure!(
                text.contains("session_gone") && text.contains("box died"),
                "the reason is missing: {text}"
            );
            Ok(())
        }
        other => anyhow::bail!("GET {path}: {other:?}"),
    }
}
