//! Standard input, output and error: whole, apart, and each at its own pace.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::harness::case::cases;
use crate::harness::test_box::{request, shell};
use crate::{BoxSpec, Fixture};
use boxwood_backend::{ExitStatus, Stdio};

cases! { "streams":
    output_and_error_are_apart,
    output_is_byte_exact,
    megabytes_on_both_streams_arrive_whole,
    stdin_is_dev_null_unless_given,
    stdin_carries_bytes_and_ends,
    stdin_can_be_answered_line_by_line,
    closing_stdin_is_the_end_of_it,
    a_reader_that_goes_away_is_a_broken_pipe,
    a_slow_reader_stalls_only_its_own_program,
}

async fn output_and_error_are_apart(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let ran = test_box
        .sh("printf ' out \\n\\n'; printf '\\terr' >&2")
        .await?;
    ensure!(ran.stdout == b" out \n\n", "stdout {:?}", ran.out());
    ensure!(ran.stderr == b"\terr", "stderr {:?}", ran.err());
    Ok(())
}

async fn output_is_byte_exact(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let every: Vec<u8> = (0..=255).collect();
    let script = "import sys; sys.stdout.buffer.write(bytes(range(256)) * 64); sys.stderr.buffer.write(bytes(range(255, -1, -1)))";
    let ran = test_box.run(request(&["python3", "-c", script])).await?;
    ran.text()?;
    ensure!(
        ran.stdout == every.repeat(64),
        "stdout has {}",
        ran.stdout.len()
    );
    let backwards: Vec<u8> = every.into_iter().rev().collect();
    ensure!(ran.stderr == backwards, "stderr has {}", ran.stderr.len());
    Ok(())
}

async fn megabytes_on_both_streams_arrive_whole(fixture: &Fixture) -> anyhow::Result<()> {
    const SIZE: usize = 8 << 20;
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let ran = test_box
        .sh("head -c 8388608 /dev/zero & head -c 8388608 /dev/zero >&2; wait")
        .await?;
    ran.text()?;
    ensure!(ran.stdout.len() == SIZE && ran.stderr.len() == SIZE);
    Ok(())
}

async fn stdin_is_dev_null_unless_given(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let text = test_box
        .stdout_of("readlink /proc/self/fd/0; cat; echo end")
        .await?;
    ensure!(text == "/dev/null\nend\n", "{text:?}");
    let process = test_box.process(shell("true")).await?;
    ensure!(process.stdin.is_none(), "a stdin to write to, unasked");
    Ok(())
}

async fn stdin_carries_bytes_and_ends(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let input: Vec<u8> = (0..1_500_000_u32)
        .map(|n| n.to_le_bytes()[n as usize % 3])
        .collect();
    let mut spawn_request = request(&["cat"]);
    spawn_request.stdio = Stdio::Pipes;
    let ran = test_box
        .spawn(spawn_request)
        .await?
        .finish_with(&input)
        .await?;
    ran.text()?;
    ensure!(
        ran.stdout == input,
        "{} of {} bytes",
        ran.stdout.len(),
        input.len()
    );
    Ok(())
}

async fn stdin_can_be_answered_line_by_line(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let mut spawn_request = request(&["cat"]);
    spawn_request.stdio = Stdio::Pipes;
    let mut process = test_box.process(spawn_request).await?;
    let stdin = process.stdin.as_mut().context("no stdin")?;
    let mut buffer = [0; 6];
    for _ in 0..50 {
        stdin.write_all(b"hello\n").await?;
        stdin.flush().await?;
        tokio::time::timeout(
            Duration::from_secs(5),
            process.stdout.read_exact(&mut buffer),
        )
        .await
        .context("no echo")??;
        ensure!(&buffer == b"hello\n");
    }
    Ok(())
}

async fn closing_stdin_is_the_end_of_it(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let mut spawn_request = shell("cat; echo closed");
    spawn_request.stdio = Stdio::Pipes;
    let mut running = test_box.spawn(spawn_request).await?;
    drop(running.stdin.take());
    let ran = running.finish_within(Duration::from_secs(10)).await?;
    ensure!(ran.text()? == "closed\n");
    Ok(())
}

async fn a_reader_that_goes_away_is_a_broken_pipe(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let process = test_box.process(request(&["yes"])).await?;
    let control = process.control.clone();
    drop(process);
    let exit = tokio::time::timeout(Duration::from_secs(10), control.wait())
        .await
        .context("a program that writes to a closed pipe does not end")?;
    ensure!(
        matches!(exit.status, ExitStatus::Signal(13) | ExitStatus::Code(1)),
        "{exit:?}"
    );
    Ok(())
}

async fn a_slow_reader_stalls_only_its_own_program(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let stalled = test_box.process(request(&["yes"])).await?;
    for _ in 0..5 {
        test_box.assert_responsive().await?;
    }
    ensure!(
        tokio::time::timeout(Duration::from_millis(200), stalled.control.wait())
            .await
            .is_err(),
        "the stalled program ended"
    );
    Ok(())
}
