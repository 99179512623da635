//! A terminal of the box's own.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::harness::case::cases;
use crate::harness::test_box::{request, shell};
use crate::{BoxSpec, Fixture};
use boxwood_backend::{
    ControlError, ExitStatus, Process, Scope, SpawnRequest, Stdio, TerminalSize,
};

cases! { "terminal" needs Terminal:
    it_is_a_terminal_of_the_requested_size,
    it_can_be_resized,
    ctrl_c_interrupts_the_foreground,
    ctrl_d_is_the_end_of_input,
    a_signal_reaches_the_foreground,
    a_program_without_one_cannot_be_resized,
    job_control_works,
}

pub(super) fn on_terminal(mut spawn_request: SpawnRequest) -> SpawnRequest {
    spawn_request.stdio = Stdio::Terminal(TerminalSize {
        rows: 33,
        cols: 101,
    });
    spawn_request
}

/// Reads until `expected` was printed.
pub(super) async fn read_until(process: &mut Process, expected: &str) -> anyhow::Result<String> {
    let mut output = String::new();
    let mut buffer = [0; 4096];
    let reading = async {
        while !output.contains(expected) {
            let count = process.stdout.read(&mut buffer).await?;
            ensure!(count > 0, "the terminal closed after {output:?}");
            output.push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
        anyhow::Ok(())
    };
    let outcome = tokio::time::timeout(Duration::from_secs(10), reading).await;
    outcome
        .with_context(|| format!("waiting for {expected:?} on the terminal"))?
        .with_context(|| format!("waiting for {expected:?}"))?;
    Ok(output)
}

pub(super) async fn type_in(process: &mut Process, keys: &str) -> anyhow::Result<()> {
    let stdin = process
        .stdin
        .as_mut()
        .context("the program on the terminal has no stdin")?;
    stdin.write_all(keys.as_bytes()).await?;
    stdin.flush().await?;
    Ok(())
}

async fn ends(process: &mut Process) -> anyhow::Result<ExitStatus> {
    let exit = tokio::time::timeout(Duration::from_secs(10), process.control.wait())
        .await
        .context("the program on the terminal does not end")?;
    Ok(exit.status)
}

async fn it_is_a_terminal_of_the_requested_size(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let mut process = test_box
        .process(on_terminal(shell(
            "test -t 0 && test -t 1 && test -t 2 && : < /dev/tty && stty size && tty && ls /proc/self/fd | tr '\\n' ' ' && echo all; exit 4",
        )))
        .await?;
    ensure!(
        process.stderr.is_none(),
        "a program on a terminal has a separate stderr"
    );
    let output = read_until(&mut process, "all").await?;
    ensure!(output.contains("33 101"), "{output:?}");
    ensure!(output.contains("/dev/pts/"), "{output:?}");
    ensure!(ends(&mut process).await? == ExitStatus::Code(4));
    Ok(())
}

async fn it_can_be_resized(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let mut process = test_box
        .process(on_terminal(shell(
            "trap 'echo winch; stty size; exit 0' WINCH; echo ready; while :; do sleep 0.1; done",
        )))
        .await?;
    read_until(&mut process, "ready").await?;
    process.control.resize(TerminalSize {
        rows: 50,
        cols: 132,
    })?;
    read_until(&mut process, "50 132").await?;
    ensure!(ends(&mut process).await? == ExitStatus::Code(0));
    Ok(())
}

async fn ctrl_c_interrupts_the_foreground(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let mut process = test_box.process(on_terminal(request(&["cat"]))).await?;
    type_in(&mut process, "hello\r").await?;
    // Twice: the terminal's echo, and `cat` itself, which is then surely running.
    read_until(&mut process, "hello\r\nhello").await?;
    type_in(&mut process, "\u{3}").await?;
    ensure!(ends(&mut process).await? == ExitStatus::Signal(2));
    test_box.assert_responsive().await
}

async fn ctrl_d_is_the_end_of_input(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let mut process = test_box
        .process(on_terminal(shell("echo ready; cat; exit 6")))
        .await?;
    read_until(&mut process, "ready").await?;
    type_in(&mut process, "\u{4}").await?;
    ensure!(ends(&mut process).await? == ExitStatus::Code(6));
    Ok(())
}

async fn a_signal_reaches_the_foreground(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let mut process = test_box
        .process(on_terminal(shell("echo ready; exec sleep 600")))
        .await?;
    read_until(&mut process, "ready").await?;
    tokio::time::sleep(Duration::from_millis(300)).await;
    process.control.signal(2, Scope::Process).await?;
    ensure!(ends(&mut process).await? == ExitStatus::Signal(2));
    Ok(())
}

async fn a_program_without_one_cannot_be_resized(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let running = test_box.spawn(request(&["sleep", "600"])).await?;
    let answer = running.control.resize(TerminalSize { rows: 1, cols: 1 });
    ensure!(
        matches!(answer, Err(ControlError::NoTerminal)),
        "{answer:?}"
    );
    running.control.signal(9, Scope::Tree).await?;
    Ok(())
}

async fn job_control_works(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let mut process = test_box
        .process(on_terminal(request(&["/bin/sh", "-i"])))
        .await?;
    type_in(
        &mut process,
        "PS1=; set -m; sleep 300 & jobs; echo mark$((40 + 2))\r",
    )
    .await?;
    let output = read_until(&mut process, "mark42").await?;
    ensure!(!output.contains("job control turned off"), "{output:?}");
    // Ctrl-C ends the job in front and not the shell.
    type_in(&mut process, "sh -c 'echo u\"\"p; exec sleep 300'\r").await?;
    // The terminal's echo of the line has quotes in it: this is the program, and it is in front.
    read_until(&mut process, "up\r\n").await?;
    type_in(&mut process, "\u{3}").await?;
    type_in(&mut process, "echo alive$((1 + 1))\r").await?;
    read_until(&mut process, "alive2").await?;
    type_in(&mut process, "exit 3\r").await?;
    let first = ends(&mut process).await;
    if first.is_err() {
        // Some shells warn about running jobs once.
        type_in(&mut process, "exit 3\r").await?;
    }
    ensure!(ends(&mut process).await? == ExitStatus::Code(3));
    Ok(())
}
