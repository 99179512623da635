//! Boxes that connect to the host continuously, while other boxes start and stop on busy processors.
//!
//! The backend is launched twice. The test fails if a connection or datagram of a box arrives at a listener of the host,
//! or if a box reports a successful connection. It takes a few seconds, and five minutes in the long form.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use boxwood_api::Network;
use libtest_mimic::Trial;

use crate::harness::host_side::{Listeners, host_addresses};
use crate::harness::test_box::request;
use crate::{
    BackendSetup, BoxSpec, Fixture, StateDirs, TestBox, failed, long_form, run_trials, runtime,
};

/// Boxes of each backend that live through the whole test.
const CALLERS: usize = 2;
/// How long a box connects before it is deleted.
const BRIEF: Duration = Duration::from_millis(200);
/// Additional time for a command to end on busy processors.
const GRACE: Duration = Duration::from_mins(1);

/// Arguments: seconds, then targets as `kind:address:port`. Exits with 0 if no connection succeeded.
const CALL: &str = r#"
import select, socket, sys, time
end = time.monotonic() + float(sys.argv[1])
targets = [target.split(":") for target in sys.argv[2:]]
calls, through = 0, []
while time.monotonic() < end:
    for kind, address, port in targets:
        s = socket.socket(socket.AF_INET, socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM)
        s.setblocking(False)
        calls += 1
        try:
            failure = s.connect_ex((address, int(port)))
            if kind == "udp":
                s.send(b"box")
            elif failure == 0 or (select.select([], [s], [], 0.01)[1] and not s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)):
                through.append((address, port, s.getsockname(), s.getpeername()))
        except OSError:
            pass
        s.close()
print(calls)
sys.exit("connected: %r" % through[:20] if through else 0)
"#;

/// The stress test. Ends the process.
pub fn run_network_stress<S: BackendSetup>(setup: S) -> ! {
    let name = "network_stress::no_call_of_a_box_arrives_at_the_host";
    run_trials(vec![Trial::test(name, move || {
        run(&setup).map_err(|error| failed(&error))
    })])
}

fn run(setup: &dyn BackendSetup) -> anyhow::Result<()> {
    let duration = Duration::from_secs(if long_form() { 300 } else { 5 });
    if !setup.host()?.network {
        return Ok(());
    }
    let dirs = [StateDirs::make()?, StateDirs::make()?];
    let backends = [setup.launch(&dirs[0])?, setup.launch(&dirs[1])?];
    let runtime = runtime()?;
    let mut fixtures = Vec::new();
    for backend in backends {
        fixtures.push(Arc::new(Fixture::new(backend, setup.host()?)?));
    }
    let load = Load::start();
    let outcome = runtime.block_on(async {
        for fixture in &fixtures {
            fixture.backend().finish_adoption().await;
        }
        let mut outcome = call_the_host(&fixtures, duration).await;
        for fixture in &fixtures {
            outcome = outcome.and(fixture.close().await);
        }
        outcome
    });
    drop(load);
    runtime.shutdown_timeout(Duration::from_secs(5));
    outcome
}

async fn call_the_host(fixtures: &[Arc<Fixture>], duration: Duration) -> anyhow::Result<()> {
    let listeners = Listeners::open().await?;
    let mut callers = Vec::new();
    for fixture in fixtures {
        for _ in 0..CALLERS {
            callers.push(fixture.start(&BoxSpec::new().network(Network::On)).await?);
        }
    }
    // Read while the boxes run, so that the host's ends of their links are among them.
    let mut targets = Vec::new();
    for address in host_addresses()?
        .into_iter()
        .filter(|address| address.is_ipv4() && !address.is_loopback())
    {
        targets.push(format!("tcp:{address}:{}", listeners.any_port));
        targets.push(format!("udp:{address}:{}", listeners.udp_port));
    }
    let targets = Arc::new(targets);
    let end = Instant::now() + duration;
    let mut tasks = Vec::new();
    for caller in callers {
        let targets = Arc::clone(&targets);
        tasks.push(tokio::spawn(async move {
            call(&caller, duration, &targets).await
        }));
    }
    for fixture in fixtures {
        let (fixture, targets) = (Arc::clone(fixture), Arc::clone(&targets));
        tasks.push(tokio::spawn(
            async move { churn(&fixture, end, &targets).await },
        ));
    }
    let mut calls = Ok(0);
    for task in tasks {
        let count = task.await.context("a task of the test").flatten();
        calls = calls.and_then(|sum: u64| Ok(sum + count?));
    }
    let calls = listeners.check_no_arrivals(calls).await?;
    ensure!(calls > 0, "no call was made");
    println!("{calls} calls, and none arrived");
    Ok(())
}

/// Starts and deletes networked boxes; each calls the host as soon as it can.
async fn churn(fixture: &Fixture, end: Instant, targets: &[String]) -> anyhow::Result<u64> {
    let mut calls = 0;
    while Instant::now() < end {
        let test_box = fixture.start(&BoxSpec::new().network(Network::On)).await?;
        calls += call(&test_box, BRIEF, targets).await?;
        test_box.stop().await?;
    }
    Ok(calls)
}

async fn call(test_box: &TestBox, duration: Duration, targets: &[String]) -> anyhow::Result<u64> {
    let seconds = duration.as_secs_f64().to_string();
    let mut argv = vec!["python3", "-I", "-c", CALL, &seconds];
    argv.extend(targets.iter().map(String::as_str));
    let running = test_box.spawn(request(&argv)).await?;
    let text = running.finish_within(duration + GRACE).await?.text()?;
    text.trim().parse().context("the number of calls")
}

/// Keeps every processor busy until it is dropped.
struct Load {
    stop: Arc<AtomicBool>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Load {
    fn start() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let threads = (0..processors)
            .map(|_| {
                let stop = Arc::clone(&stop);
                std::thread::spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                })
            })
            .collect();
        Self { stop, threads }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // The loop cannot panic.
            let _ = thread.join();
        }
    }
}
