//! Installs, run by a real shell.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use boxwood_api::{McpPhase, McpRuntimeInfo, McpServerName, McpServerSpec, McpStatus, SessionId};
use serde_json::json;
use tokio::sync::mpsc;

use super::real::SERVER;
use super::runtime::{TestRuntime, is_install};
use super::{House, spec_of};
use crate::hosting::box_spec::{Lasts, Workspace};
use crate::hosting::clock::StartClock;
use crate::hosting::fault::Fault;
use crate::hosting::install::{Install, Installed, Reuse};
use crate::hosting::kit::Kit;
use crate::hosting::launch::{self, HostFacts, InstallPlan};
use crate::hosting::naming;
use crate::hosting::retry::Mends;
use crate::hosting::starting::Start;
use crate::hosting::track::Track;
use crate::hosting::{HostingError, HostingSettings};

struct Bench {
    dir: tempfile::TempDir,
    runtime: Arc<TestRuntime>,
    kit: Arc<Kit>,
    track: Track,
    spec: McpServerSpec,
}

impl Bench {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut HostingSettings)) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let runtime = Arc::new(TestRuntime::default());
        let mut settings = HostingSettings::new(dir.path().join("mcp"));
        change(&mut settings);
        let kit = Kit::open(Arc::clone(&runtime) as _, settings).expect("a kit");
        let spec = json!({
            "name": "time", "command": "uvx", "env": {"TOKEN": "hunter2-secret"},
            "box": {"network": "off"},
        });
        Self {
            dir,
            runtime,
            kit,
            track: Track::new(),
            spec: spec_of(spec),
        }
    }

    async fn make(
        &self,
        key: &str,
        script: &str,
        seconds: u64,
        reuse: Reuse,
    ) -> Result<Installed, Fault> {
        let plan = InstallPlan {
            basis: "basis".to_owned(),
            script: script.to_owned(),
            env: BTreeMap::from([("MODE".to_owned(), "install".to_owned())]),
            what: "mcp-server-time".to_owned(),
            parts: Vec::new(),
            contents: Vec::new(),
        };
        let install = Install {
            kit: &self.kit,
            spec: &self.spec,
            plan: &plan,
            key,
            workspace: &Workspace::Private,
            track: &self.track,
            has_shown: AtomicBool::new(false),
        };
        install.run(&mut StartClock::start(seconds), reuse).await
    }

    async fn install(&self, script: &str, seconds: u64) -> Result<PathBuf, Fault> {
        let installed = self.make("key", script, seconds, Reuse::IfThere).await;
        self.settle().await;
        installed.map(|installed| installed.place)
    }

    /// What is dropped is removed in the background.
    async fn settle(&self) {
        self.kit.tasks.close();
        self.kit.tasks.wait().await;
        self.kit.tasks.reopen();
        assert_eq!(self.runtime.names(), [""; 0], "its box is gone");
    }

    fn cached(&self) -> usize {
        self.cache().count()
    }

    /// Whether an install has come as far as this file.
    fn has_cached(&self, file: &str) -> bool {
        let mut installs = self.cache().flatten();
        installs.any(|install| install.path().join(file).exists())
    }

    fn cache(&self) -> std::fs::ReadDir {
        std::fs::read_dir(self.dir.path().join("mcp/cache")).expect("listed")
    }
}

#[tokio::test]
async fn an_installer_has_the_memory_that_was_asked_for_where_that_is_more() {
    for (asked, given) in [(64, None), (768, Some(768))] {
        let mut bench = Bench::new();
        bench.spec.settings.memory_mb = Some(asked);
        bench.install("true", 60).await.expect("installed");
        let requested = bench.runtime.requested();
        let memory: Vec<_> = requested.iter().map(|(spec, _)| spec.memory_mb).collect();
        assert_eq!(memory, [given], "{asked}");
    }
}

#[tokio::test]
async fn an_install_is_kept_and_the_next_start_does_none() {
    let bench = Bench::new();
    let script = "echo Collecting $MODE; echo warning hunter2-secret >&2; echo it > /opt/mcp/tool";
    let place = bench.install(script, 60).await.expect("installed");
    assert_eq!(
        std::fs::read_to_string(place.join("tool")).expect("a file"),
        "it\n"
    );
    let log = bench.track.install_log();
    assert!(
        log.contains("Collecting install") && log.contains("warning [TOKEN]"),
        "{log}"
    );
    let step = bench.track.steps().pop().expect("a step");
    assert_eq!(
        (step.phase, step.detail.as_deref()),
        (McpPhase::DepInstall, Some("mcp-server-time"))
    );
    let again = bench.install("exit 1", 60).await.expect("nothing to do");
    assert_eq!(again, place);
    assert_eq!(bench.runtime.executed().len(), 1);
    // With the network on, whatever the server is to have, and without its secrets.
    let asked = serde_json::to_value(&bench.runtime.executed()[0]).expect("JSON");
    assert_eq!(asked["network"], "on");
    assert_eq!(asked["env"], json!({"MODE": "install"}));
}

#[tokio::test]
async fn two_servers_that_need_the_same_install_it_once() {
    let bench = Bench::new();
    let slow = "sleep 0.3; echo it > /opt/mcp/tool";
    let one = bench.make("shared", slow, 60, Reuse::IfThere);
    let other = bench.make("shared", slow, 60, Reuse::IfThere);
    let (one, other) = tokio::join!(one, other);
    let (one, other) = (one.expect("installed"), other.expect("installed"));
    assert_eq!(one.place, other.place);
    assert!(one.is_new != other.is_new);
    assert_eq!(bench.runtime.executed().len(), 1);
}

#[tokio::test]
async fn a_failed_install_says_why_and_leaves_nothing() {
    let bench = Bench::new();
    let script = "touch /opt/mcp/half; echo 'No matching distribution found for x' >&2; exit 7";
    let fault = bench.install(script, 60).await.expect_err("it failed");
    assert_eq!(fault.phase, McpPhase::DepInstall);
    let expected = "Dependency install failed (exit code 7): No matching distribution found for x";
    assert_eq!(
        (fault.message.as_str(), fault.mends),
        (expected, Mends::HardlyTwice)
    );
    assert_eq!(bench.cached(), 0);
}

#[tokio::test]
async fn an_install_that_takes_too_long_ends_in_its_phase() {
    let bench = Bench::new();
    let fault = bench
        .install("sleep 60", 1)
        .await
        .expect_err("it is too slow");
    assert_eq!(fault.phase, McpPhase::DepInstall);
    assert!(
        fault.message.contains("timeout after 1 seconds"),
        "{}",
        fault.message
    );
    assert_eq!(bench.cached(), 0);
}

#[tokio::test]
async fn an_install_that_nobody_uses_is_dropped_and_one_in_use_is_not() {
    let bench = Bench::new();
    bench
        .install("touch /opt/mcp/tool", 60)
        .await
        .expect("installed");
    let used = bench.kit.use_install("key");
    bench.kit.drop_install("key".to_owned()).await;
    assert_eq!(bench.cached(), 1);
    drop(used);
    bench.kit.drop_install("key".to_owned()).await;
    assert_eq!(bench.cached(), 0);
}

#[tokio::test]
async fn an_install_of_a_removed_server_goes_when_the_last_lets_go_of_it() {
    let bench = Bench::new();
    let installed = bench.install("touch /opt/mcp/tool", 60).await;
    installed.expect("installed");
    let (leaving, other) = (bench.kit.use_install("key"), bench.kit.use_install("key"));
    bench.kit.drop_when_unused("key".to_owned());
    drop(leaving);
    bench.kit.drop_install("key".to_owned()).await;
    assert_eq!(bench.cached(), 1, "somebody else runs from it");
    drop(other);
    for _ in 0..500 {
        if bench.cached() == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it stays");
}

#[tokio::test]
async fn a_half_made_install_goes_after_its_box_and_off_the_callers_thread() {
    let bench = Bench::new();
    let script = "mkdir -p /opt/mcp/a/b; chmod 555 /opt/mcp/a; touch /opt/mcp/half; exec sleep 60";
    let mut making = Box::pin(bench.make("key", script, 60, Reuse::IfThere));
    let there = || (bench.cached(), bench.runtime.names().len());
    for _ in 0..600 {
        let began = tokio::time::timeout(Duration::from_millis(50), &mut making).await;
        assert!(began.is_err(), "it still installs");
        if bench.has_cached("half") {
            break;
        }
    }
    assert_eq!(there(), (1, 1));
    drop(making);
    // Nothing is done before the task that does both has its turn.
    assert_eq!(there(), (1, 1));
    bench.settle().await;
    assert_eq!(bench.cached(), 0);
}

#[tokio::test]
async fn an_install_that_grows_too_large_is_ended_and_leaves_nothing() {
    let bench = Bench::with(|settings| settings.install_bytes = 1 << 20);
    let write = "head -c 3000000 /dev/zero > /opt/mcp/big";
    for script in [write.to_owned(), format!("{write}; exec sleep 60")] {
        let fault = bench.install(&script, 30).await.expect_err("too large");
        assert_eq!(fault.phase, McpPhase::DepInstall);
        assert!(fault.message.contains("more than 1 MiB"), "{fault:?}");
        assert_eq!((fault.mends, bench.cached()), (Mends::Never, 0));
    }
}

#[tokio::test]
async fn what_nobody_uses_makes_room_and_without_room_nothing_is_installed() {
    let bench = Bench::with(|settings| settings.cache_bytes = 1 << 20);
    let large = "head -c 2000000 /dev/zero > /opt/mcp/big";
    let first = bench.make("first", large, 60, Reuse::IfThere).await;
    let first = first.expect("nothing was there yet");
    let refused = bench.make("second", large, 60, Reuse::IfThere).await;
    let fault = refused.err().expect("the first one is used");
    assert!(fault.message.contains("1 MiB are the most"), "{fault:?}");
    assert!(fault.hint.is_some_and(|hint| hint.contains("mcp rm")));
    drop(first);
    let second = bench.make("second", large, 60, Reuse::IfThere).await;
    second.expect("the first one has gone");
    assert_eq!(bench.cached(), 1);
}

#[tokio::test]
async fn an_install_made_anew_leaves_the_older_one_to_whoever_runs_from_it() {
    let bench = Bench::new();
    let old = bench
        .make("key", "echo 1 > /opt/mcp/v", 60, Reuse::IfThere)
        .await;
    let old = old.expect("installed");
    let failed = bench.make("key", "exit 1", 60, Reuse::Never).await;
    assert!(failed.is_err());
    let new = bench
        .make("key", "echo 2 > /opt/mcp/v", 60, Reuse::Never)
        .await;
    let new = new.expect("installed");
    let found = bench.make("key", "exit 1", 60, Reuse::IfThere).await;
    assert_eq!(found.expect("there").place, new.place);
    bench.kit.drop_install(old.used.key.clone()).await;
    assert!(old.place.join("v").exists(), "it is in use");
    let name = old.used.key.clone();
    let place = old.place.clone();
    drop(old);
    bench.kit.drop_install(name).await;
    assert!(!place.exists() && new.place.exists());
}

#[tokio::test]
async fn what_nobody_wanted_for_long_is_swept_and_what_is_made_now_is_not() {
    let bench = Bench::new();
    let old = bench
        .install("touch /opt/mcp/tool", 60)
        .await
        .expect("installed");
    let making = bench.kit.cache.fresh().expect("a place");
    std::fs::create_dir(bench.dir.path().join("mcp/cache/.new-left")).expect("made");
    bench.kit.tidy().await;
    assert!(old.exists() && making.exists());
    assert_eq!(bench.cached(), 2, "what nobody finishes is gone");
    let noted = bench.dir.path().join("mcp/sizes/key");
    let long_ago = std::time::SystemTime::now() - Duration::from_hours(30);
    let noted = std::fs::File::options().write(true).open(noted);
    noted
        .and_then(|noted| noted.set_modified(long_ago))
        .expect("set");
    // Somebody wants it again.
    bench.install("exit 1", 60).await.expect("found");
    bench.kit.tidy().await;
    assert!(old.exists());
    let noted = bench.dir.path().join("mcp/sizes/key");
    let noted = std::fs::File::options().write(true).open(noted);
    noted
        .and_then(|noted| noted.set_modified(long_ago))
        .expect("set");
    bench.kit.tidy().await;
    assert!(!old.exists());
}

impl House {
    fn installs(&self) -> usize {
        let executed = self.runtime.executed();
        executed.iter().filter(|script| is_install(script)).count()
    }

    /// Until it is connected by another start than before.
    async fn started_again(&self, name: &McpServerName, boxes: usize) {
        self.until(name, |runtime| {
            let made = self.runtime.created.load(Ordering::Relaxed);
            runtime.status == McpStatus::Connected && made > boxes
        })
        .await;
    }

    fn boxes_made(&self) -> usize {
        self.runtime.created.load(Ordering::Relaxed)
    }
}

#[tokio::test]
async fn a_server_is_installed_anew_when_somebody_asks_or_its_box_is_another() {
    let house = House::new();
    let server = house
        .add(json!({
            "name": "real", "command": "python", "args": ["-c", "import os; exec(os.environ['CODE'])"],
            "env": {"CODE": SERVER},
        }))
        .await;
    house.until_status(&server, McpStatus::Connected).await;
    assert_eq!(house.installs(), 1);

    let boxes = house.boxes_made();
    house.hosting.restart(&server).await.expect("restarted");
    house.started_again(&server, boxes).await;
    assert_eq!(house.installs(), 1, "what is there will do");

    let boxes = house.boxes_made();
    house.hosting.reinstall(&server).await.expect("restarted");
    house.started_again(&server, boxes).await;
    assert_eq!(house.installs(), 2);
    let boxes = house.boxes_made();
    house.hosting.restart(&server).await.expect("restarted");
    house.started_again(&server, boxes).await;
    assert_eq!(house.installs(), 2, "it was asked for once");

    // The operator gives the profile another image.
    "other".clone_into(&mut house.runtime.image.lock().expect("no panic"));
    let boxes = house.boxes_made();
    house.hosting.restart(&server).await.expect("restarted");
    house.started_again(&server, boxes).await;
    assert_eq!(house.installs(), 3);

    house.hosting.remove(&server).await.expect("removed");
    house.hosting.close().await;
    assert_eq!(house.entries("cache"), 0, "nobody uses any of them");
}

#[tokio::test]
async fn an_install_anew_that_fails_leaves_the_old_one_to_start_from() {
    let house = House::with(|settings| settings.retry_delays = [Duration::from_millis(1); 3]);
    let server = house
        .add(json!({
            "name": "real", "command": "python", "args": ["-c", "import os; exec(os.environ['CODE'])"],
            "env": {"CODE": SERVER},
        }))
        .await;
    house.until_status(&server, McpStatus::Connected).await;
    house.runtime.install_fails.store(true, Ordering::Relaxed);
    house.hosting.reinstall(&server).await.expect("under way");
    let failed = house.until_status(&server, McpStatus::Error).await;
    assert_eq!(failed.error_phase, Some(McpPhase::DepInstall));
    house.hosting.start(&server).await.expect("under way");
    let started = house.until(&server, is_settled).await;
    assert_eq!(started.status, McpStatus::Connected, "{started:#?}");

    // Whoever thinks better of it has the old one at once.
    house.hosting.reinstall(&server).await.expect("under way");
    house.hosting.stop(&server).await.expect("stopped");
    house.hosting.start(&server).await.expect("under way");
    let started = house.until(&server, is_settled).await;
    assert_eq!(started.status, McpStatus::Connected, "{started:#?}");
    house.hosting.close().await;
}

#[tokio::test]
async fn what_is_refused_is_not_installed_anew_later() {
    let house = House::new();
    let server = house
        .add(json!({
            "name": "real", "command": "python", "args": ["-c", "import os; exec(os.environ['CODE'])"],
            "env": {"CODE": SERVER},
        }))
        .await;
    house.until_status(&server, McpStatus::Connected).await;
    let edit =
        |enabled: bool| serde_json::from_value(json!({"enabled": enabled})).expect("an edit");
    house.hosting.edit(&server, edit(false)).await.expect("off");
    let refused = house.hosting.reinstall(&server).await;
    assert!(
        matches!(refused, Err(HostingError::Disabled { .. })),
        "{refused:?}"
    );
    house.hosting.edit(&server, edit(true)).await.expect("on");
    house.until_status(&server, McpStatus::Connected).await;
    assert_eq!(house.installs(), 1);
    house.hosting.close().await;
}

fn is_settled(runtime: &McpRuntimeInfo) -> bool {
    matches!(runtime.status, McpStatus::Connected | McpStatus::Error)
}

#[tokio::test]
async fn an_installer_with_much_to_say_is_heard_however_much_there_is_to_hide() {
    let mut bench = Bench::new();
    let value = |number| format!("{number:02000}");
    bench.spec.env = (0..500)
        .map(|number| (format!("V{number}"), value(number)))
        .collect();
    let script = format!("yes a | head -n 20000; echo {} > /dev/stderr", value(7));
    bench.install(&script, 20).await.expect("installed in time");
    let log = bench.track.install_log();
    assert!(log.contains("a\na\n") && log.contains("[V7]"), "{log}");
}

#[tokio::test]
async fn what_a_test_installed_from_a_directory_is_nobody_elses() {
    let house = House::new();
    let project = house.dir.path().join("project");
    std::fs::create_dir(&project).expect("made");
    for (file, text) in [("requirements.txt", "# nothing\n"), ("server.py", SERVER)] {
        std::fs::write(project.join(file), text).expect("written");
    }
    let spec = json!({"name": "real", "command": "python", "args": [project.join("server.py")]});
    let (tell, _told) = mpsc::channel(64);
    // What a real shell installed lies elsewhere than its program believes, so it is not started here.
    let tested = house.hosting.test(spec_of(spec), tell).await;
    let tested = tested.expect("tested");
    let phase = tested.runtime.error_phase;
    assert_eq!(phase, Some(McpPhase::ProcessStart), "{}", tested.log);
    assert_eq!(house.installs(), 1);
    let gone = async {
        while house.entries("cache") > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let gone = tokio::time::timeout(Duration::from_secs(30), gone).await;
    gone.expect("it goes with the test");
}

#[tokio::test]
async fn a_test_shares_what_comes_from_a_registry_and_nothing_that_saw_a_directory() {
    let bench = Bench::new();
    let project = bench.dir.path().join("project");
    std::fs::create_dir(&project).expect("made");
    std::fs::write(project.join("requirements.txt"), "mcp\n").expect("written");
    std::fs::write(project.join("server.py"), "").expect("written");
    let clock = StartClock::start(60);
    let key = async |spec: &McpServerSpec, session: SessionId, lasts: Lasts| {
        let start = Start {
            kit: &bench.kit,
            spec,
            session: &session,
            lasts,
            track: &bench.track,
            protocol: &Arc::default(),
        };
        let plan = launch::plan(spec, &HostFacts::of_this_host()).expect("a plan");
        let install = plan.install.expect("there is one");
        let key = start.key(&clock, &install, &Workspace::Private).await;
        key.expect("a key")
    };
    for (args, is_shared) in [
        (
            json!({"name": "x", "command": "uvx", "args": ["mcp-server-time"]}),
            true,
        ),
        (
            json!({"name": "x", "command": "python", "args": [project.join("server.py")]}),
            false,
        ),
    ] {
        let spec = spec_of(args);
        let hosted = key(&spec, naming::session_of(&spec.name), Lasts::UntilRemoved).await;
        let one = key(&spec, naming::test_session(), Lasts::ForATest).await;
        let other = key(&spec, naming::test_session(), Lasts::ForATest).await;
        assert_eq!(
            (hosted == one, one == other),
            (is_shared, is_shared),
            "{spec:?}"
        );
    }
}
