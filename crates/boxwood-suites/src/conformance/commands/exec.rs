//! Programs: start, end, signals.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use crate::harness::case::cases;
use crate::harness::test_box::{request, shell};
use crate::{BoxSpec, Fixture};
use boxwood_backend::{ControlError, ExitStatus, Scope, Stdio};

cases! { "exec":
    exit_codes_are_exact,
    death_by_signal_is_reported_as_a_signal,
    a_missing_program_exits_127,
    a_program_that_cannot_be_executed_exits_126,
    a_program_without_a_slash_is_looked_up_in_the_path,
    arguments_arrive_untouched,
    the_working_directory_is_created,
    a_long_script_runs_like_a_short_one,
    a_script_of_900_kib_runs,
    programs_run_in_parallel,
    a_background_process_outlives_its_shell,
    several_callers_may_wait_at_any_time,
    a_signal_reaches_the_program,
    controlling_an_ended_program_fails,
    a_signal_that_does_not_exist_is_refused,
    a_dropped_program_runs_on,
}

async fn exit_codes_are_exact(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    for code in [0, 1, 2, 42, 126, 127, 128, 137, 255] {
        let ran = test_box.sh(&format!("exit {code}")).await?;
        ensure!(
            ran.exit.status == ExitStatus::Code(code),
            "exit {code} became {:?}",
            ran.exit
        );
        ensure!(!ran.exit.oom && !ran.exit.pids_limit && ran.exit.denied_syscall.is_none());
    }
    Ok(())
}

async fn death_by_signal_is_reported_as_a_signal(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    for signal in [1, 2, 3, 6, 9, 11, 13, 15, 34] {
        let ran = test_box.sh(&format!("kill -{signal} $$; sleep 5")).await?;
        ensure!(
            ran.exit.status == ExitStatus::Signal(signal),
            "signal {signal} became {:?}",
            ran.exit
        );
        ensure!(ran.exit.code() == Some(128 + signal));
    }
    Ok(())
}

async fn a_missing_program_exits_127(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    for program in ["no-such-program", "/no/such/program", "./nothing"] {
        let ran = test_box.run(request(&[program])).await?;
        ensure!(ran.code() == Some(127), "{program}: {:?}", ran.exit);
        ensure!(
            ran.err().contains(program) && ran.err().ends_with('\n'),
            "{program}: not named on stderr: {:?}",
            ran.err()
        );
    }
    Ok(())
}

async fn a_program_that_cannot_be_executed_exits_126(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    test_box
        .stdout_of("echo data > /workspace/data; chmod 644 /workspace/data; mkdir /workspace/dir")
        .await?;
    for program in ["/workspace/data", "/workspace/dir"] {
        let ran = test_box.run(request(&[program])).await?;
        ensure!(ran.code() == Some(126), "{program}: {:?}", ran.exit);
        ensure!(
            ran.err().contains(program),
            "{program}: not named on stderr: {:?}",
            ran.err()
        );
    }
    Ok(())
}

async fn a_program_without_a_slash_is_looked_up_in_the_path(
    fixture: &Fixture,
) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let ran = test_box.run(request(&["echo", "found"])).await?;
    ensure!(ran.text()? == "found\n");
    test_box.stdout_of("mkdir -p /workspace/bin; printf '#!/bin/sh\\necho mine\\n' > /workspace/bin/echo; chmod +x /workspace/bin/echo").await?;
    let mut spawn_request = request(&["echo", "found"]);
    spawn_request.env = [("PATH".to_owned(), "/workspace/bin".to_owned())].into();
    let ran = test_box.run(spawn_request).await?;
    ensure!(
        ran.text()? == "mine\n",
        "the PATH of the request was not used"
    );
    Ok(())
}

async fn arguments_arrive_untouched(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let arguments = [
        "",
        " ",
        "a b",
        "$HOME",
        "'\"\\",
        "--",
        "-x",
        "ä→🦀",
        "line\nline",
        "*",
    ];
    let argv: Vec<&str> = ["/usr/bin/printf", "%s\\0"]
        .into_iter()
        .chain(arguments)
        .collect();
    let ran = test_box.run(request(&argv)).await?;
    let expected = arguments.join("\0") + "\0";
    ensure!(ran.text()? == expected, "got {:?}", ran.out());
    Ok(())
}

async fn the_working_directory_is_created(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    for cwd in [
        "/workspace/a/b/c",
        "/tmp/deep/er",
        "/home/box/x",
        "/workspace",
    ] {
        let mut spawn_request = shell("pwd -P && touch here");
        cwd.clone_into(&mut spawn_request.cwd);
        let ran = test_box.run(spawn_request).await?;
        ensure!(ran.text()?.trim() == cwd, "{cwd}: {:?}", ran.out());
    }
    // A directory that cannot be created fails the command and does not break the box.
    let mut spawn_request = shell("echo ran");
    "/proc/nowhere".clone_into(&mut spawn_request.cwd);
    let result = match test_box.spawn(spawn_request).await {
        Err(_) => None,
        Ok(running) => Some(running.finish().await?),
    };
    ensure!(
        result.as_ref().is_none_or(|ran| ran.code() != Some(0)),
        "ran in a directory that cannot exist: {result:?}"
    );
    test_box.assert_responsive().await
}

async fn a_long_script_runs_like_a_short_one(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let filler = format!(": '{}'\n", "x".repeat(1000)).repeat(200);
    ensure!(filler.len() > 200_000);
    let ran = test_box
        .sh(&format!("{filler}echo \"$#\"; cat; exit 7"))
        .await?;
    ensure!(ran.code() == Some(7), "{:?} {:?}", ran.exit, ran.err());
    ensure!(ran.out() == "0\n", "{:?}", ran.out());
    // Only the shell has the descriptor of the script.
    let list = "python3 -c \"import os; print(*os.listdir('/proc/self/fd'), sep='\\n')\"";
    let ran = test_box.sh(&format!("{filler}{list}")).await?;
    ensure!(
        ran.text()?.lines().count() <= 5,
        "descriptors in a long script: {:?}",
        ran.out()
    );
    Ok(())
}

async fn a_script_of_900_kib_runs(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let filler = format!(": '{}'\n", "x".repeat(1000));
    let script = format!("{}echo end", filler.repeat(900));
    let ran = test_box.sh(&script).await?;
    ensure!(ran.text()? == "end\n");
    Ok(())
}

async fn programs_run_in_parallel(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let began = Instant::now();
    let mut running = Vec::new();
    for number in 0..20 {
        running.push(
            test_box
                .spawn(shell(&format!("sleep 1; echo {number}")))
                .await?,
        );
    }
    for (number, one) in running.into_iter().enumerate() {
        let ran = one.finish().await?;
        ensure!(ran.text()? == format!("{number}\n"));
    }
    let took = began.elapsed();
    ensure!(
        took < Duration::from_secs(12),
        "20 sleeps of 1 s took {took:?}"
    );
    Ok(())
}

async fn a_background_process_outlives_its_shell(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    test_box
        .stdout_of("(sleep 1; echo later > /workspace/later) >/dev/null 2>&1 & echo started")
        .await?;
    for _ in 0..60 {
        if test_box.sh("cat /workspace/later").await?.out() == "later\n" {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    anyhow::bail!("a background process was killed with its command")
}

async fn several_callers_may_wait_at_any_time(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let running = test_box.spawn(shell("sleep 0.3; exit 5")).await?;
    let control = running.control.clone();
    let (one, two) = tokio::join!(control.wait(), control.wait());
    ensure!(one.status == ExitStatus::Code(5) && two.status == ExitStatus::Code(5));
    let late = tokio::time::timeout(Duration::from_secs(5), control.wait())
        .await
        .context("a wait after the end hangs")?;
    ensure!(late.status == ExitStatus::Code(5));
    Ok(())
}

async fn a_signal_reaches_the_program(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let script =
        "trap 'echo got; exit 9' USR1; echo ready; touch ready; while :; do sleep 0.1; done";
    let mut spawn_request = shell(script);
    spawn_request.stdio = Stdio::Pipes;
    let running = test_box.spawn(spawn_request).await?;
    // A signal before the trap is set would kill the shell.
    test_box
        .stdout_of("until [ -e ready ]; do sleep 0.05; done")
        .await?;
    running.control.signal(10, Scope::Process).await?;
    let ran = running.finish().await?;
    ensure!(
        ran.code() == Some(9) && ran.out() == "ready\ngot\n",
        "{ran:?}"
    );

    let running = test_box.spawn(request(&["sleep", "600"])).await?;
    running.control.signal(15, Scope::Process).await?;
    let ran = running.finish().await?;
    ensure!(ran.exit.status == ExitStatus::Signal(15), "{:?}", ran.exit);
    Ok(())
}

async fn controlling_an_ended_program_fails(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let running = test_box.spawn(shell("true")).await?;
    let control = running.control.clone();
    running.finish().await?;
    let answer = control.signal(15, Scope::Process).await;
    ensure!(matches!(answer, Err(ControlError::Ended)), "{answer:?}");
    test_box.assert_responsive().await
}

async fn a_signal_that_does_not_exist_is_refused(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let running = test_box.spawn(request(&["sleep", "600"])).await?;
    for signal in [-1, 65, 1000, i32::MAX, i32::MIN] {
        let answer = running.control.signal(signal, Scope::Process).await;
        ensure!(
            matches!(answer, Err(ControlError::BadSignal(number)) if number == signal),
            "signal {signal}: {answer:?}"
        );
    }
    running.control.signal(9, Scope::Tree).await?;
    let ran = running.finish().await?;
    ensure!(ran.exit.status == ExitStatus::Signal(9), "{:?}", ran.exit);
    Ok(())
}

async fn a_dropped_program_runs_on(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let process = test_box
        .process(shell("sleep 1; echo done > /workspace/done"))
        .await?;
    drop(process);
    for _ in 0..60 {
        if test_box.sh("cat /workspace/done").await?.out() == "done\n" {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    anyhow::bail!("the program ended when its handle was dropped")
}
