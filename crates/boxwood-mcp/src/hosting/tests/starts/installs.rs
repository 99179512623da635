//! Installs, executed by a real shell.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use boxwood_api::{McpPhase, McpRuntimeInfo, McpServerName, McpServerSpec, McpStatus, SessionId};
use serde_json::json;
use tokio::sync::mpsc;

use crate::hosting::boxes::box_spec::BoxLifetime;
use crate::hosting::boxes::ids;
use crate::hosting::cache::install::{Install, Installed, Reuse};
use crate::hosting::context::HostContext;
use crate::hosting::launch;
use crate::hosting::launch::InstallPlan;
use crate::hosting::logs::progress::ProgressLog;
use crate::hosting::supervisor::deadline::StartClock;
use crate::hosting::supervisor::fault::Fault;
use crate::hosting::supervisor::retry::Retryable;
use crate::hosting::supervisor::start::Start;
use crate::hosting::tests::real::SERVER;
use crate::hosting::tests::runtime::{TestRuntime, is_install};
use crate::hosting::tests::{Fixture, settings_in, spec_of, state_of};
use crate::hosting::{HostingError, HostingSettings};

struct Bench {
    dir: tempfile::TempDir,
    runtime: Arc<TestRuntime>,
    context: Arc<HostContext>,
    progress_log: ProgressLog,
    spec: McpServerSpec,
}

impl Bench {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut HostingSettings)) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let runtime = Arc::new(TestRuntime::default());
        let mut settings = settings_in(dir.path());
        change(&mut settings);
        let context = HostContext::open(Arc::clone(&runtime) as _, settings).expect("a context");
        let spec = json!({
            "name": "time", "command": "uvx", "env": {"TOKEN": "hunter2-secret"},
            "box": {"network": "off"},
        });
        Self {
            dir,
            runtime,
            context,
            progress_log: ProgressLog::new(),
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
            has_node_modules: false,
        };
        let install = Install {
            context: &self.context,
            spec: &self.spec,
            plan: &plan,
            key,
            progress_log: &self.progress_log,
        };
        install.run(&mut StartClock::start(seconds), reuse).await
    }

    async fn install(&self, script: &str, seconds: u64) -> Result<PathBuf, Fault> {
        let installed = self.make("key", script, seconds, Reuse::IfPresent).await;
        self.settle().await;
        installed.map(|installed| installed.directory)
    }

    /// Waits for background removals.
    async fn settle(&self) {
        self.context.tasks.close();
        self.context.tasks.wait().await;
        self.context.tasks.reopen();
        assert_eq!(self.runtime.names(), [""; 0], "its box is gone");
    }

    fn cached(&self) -> usize {
        self.cache().count()
    }

    /// Returns true if a partial or complete install contains this file.
    fn has_cached(&self, file: &str) -> bool {
        let mut installs = self.cache().flatten();
        installs.any(|install| install.path().join(file).exists())
    }

    fn cache(&self) -> std::fs::ReadDir {
        std::fs::read_dir(self.dir.path().join("mcp/cache")).expect("listed")
    }
}

#[tokio::test]
async fn an_installer_gets_the_higher_memory_limit() {
    for (memory_mb, expected) in [(64, None), (768, Some(768))] {
        let mut bench = Bench::new();
        bench.spec.settings.memory_mb = Some(memory_mb);
        bench.install("true", 60).await.expect("installed");
        let requested = bench.runtime.requested();
        let memory: Vec<_> = requested.iter().map(|(spec, _)| spec.memory_mb).collect();
        assert_eq!(memory, [expected], "{memory_mb}");
    }
}

#[tokio::test]
async fn the_next_start_uses_the_cached_install() {
    let bench = Bench::new();
    let script = "echo Collecting $MODE; echo warning hunter2-secret >&2; echo it > /opt/mcp/tool";
    let directory = bench.install(script, 60).await.expect("installed");
    assert_eq!(
        std::fs::read_to_string(directory.join("tool")).expect("a file"),
        "it\n"
    );
    let log = bench.progress_log.install_log();
    assert!(
        log.contains("Collecting install") && log.contains("warning [TOKEN]"),
        "{log}"
    );
    let step = bench.progress_log.steps().pop().expect("a step");
    assert_eq!(
        (step.phase, step.detail.as_deref()),
        (McpPhase::DepInstall, Some("mcp-server-time"))
    );
    let reused = bench.install("exit 1", 60).await.expect("nothing to do");
    assert_eq!(reused, directory);
    assert_eq!(bench.runtime.executed().len(), 1);
    // The installer has network access whatever the server has, and no secrets.
    let request = serde_json::to_value(&bench.runtime.executed()[0]).expect("JSON");
    assert_eq!(request["network"], "on");
    assert_eq!(request["env"], json!({"MODE": "install"}));
}

#[tokio::test]
async fn two_servers_share_one_install() {
    let bench = Bench::new();
    let slow = "sleep 0.3; echo it > /opt/mcp/tool";
    let one = bench.make("shared", slow, 60, Reuse::IfPresent);
    let other = bench.make("shared", slow, 60, Reuse::IfPresent);
    let (one, other) = tokio::join!(one, other);
    let (one, other) = (one.expect("installed"), other.expect("installed"));
    assert_eq!(one.directory, other.directory);
    assert!(one.is_new != other.is_new);
    assert_eq!(bench.runtime.executed().len(), 1);
}

#[tokio::test]
async fn a_failed_install_is_explained_and_removed() {
    let bench = Bench::new();
    let script = "touch /opt/mcp/half; echo 'No matching distribution found for x' >&2; exit 7";
    let fault = bench.install(script, 60).await.expect_err("it failed");
    assert_eq!(fault.phase, McpPhase::DepInstall);
    let expected = "Dependency install failed (exit code 7): No matching distribution found for x";
    assert_eq!(
        (fault.message.as_str(), fault.retryable),
        (expected, Retryable::Once)
    );
    assert_eq!(bench.cached(), 0);
}

#[tokio::test]
async fn an_install_timeout_is_reported_in_its_phase() {
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
async fn unused_installs_are_removed_and_used_ones_stay() {
    let bench = Bench::new();
    bench
        .install("touch /opt/mcp/tool", 60)
        .await
        .expect("installed");
    let used = bench.context.use_install("key");
    bench.context.drop_install("key".to_owned()).await;
    assert_eq!(bench.cached(), 1);
    drop(used);
    bench.context.drop_install("key".to_owned()).await;
    assert_eq!(bench.cached(), 0);
}

#[tokio::test]
async fn a_partial_install_is_removed_after_its_box_in_the_background() {
    let bench = Bench::new();
    let script = "mkdir -p /opt/mcp/a/b; chmod 555 /opt/mcp/a; touch /opt/mcp/half; exec sleep 60";
    let mut making = Box::pin(bench.make("key", script, 60, Reuse::IfPresent));
    let counts = || (bench.cached(), bench.runtime.names().len());
    for _ in 0..600 {
        let began = tokio::time::timeout(Duration::from_millis(50), &mut making).await;
        assert!(began.is_err(), "it still installs");
        if bench.has_cached("half") {
            break;
        }
    }
    assert_eq!(counts(), (1, 1));
    drop(making);
    // Removal happens in a background task, which has not run yet.
    assert_eq!(counts(), (1, 1));
    bench.settle().await;
    assert_eq!(bench.cached(), 0);
}

#[tokio::test]
async fn an_oversized_install_is_stopped_and_removed() {
    let bench = Bench::with(|settings| settings.install_bytes = 1 << 20);
    let write = "head -c 3000000 /dev/zero > /opt/mcp/big";
    for script in [write.to_owned(), format!("{write}; exec sleep 60")] {
        let fault = bench.install(&script, 30).await.expect_err("too large");
        assert_eq!(fault.phase, McpPhase::DepInstall);
        assert!(fault.message.contains("more than 1 MiB"), "{fault:?}");
        assert_eq!((fault.retryable, bench.cached()), (Retryable::No, 0));
    }
}

#[tokio::test]
async fn unused_installs_are_evicted_and_a_full_cache_refuses_installs() {
    let bench = Bench::with(|settings| settings.cache_bytes = 1 << 20);
    let large = "head -c 2000000 /dev/zero > /opt/mcp/big";
    let first = bench.make("first", large, 60, Reuse::IfPresent).await;
    let first = first.expect("nothing was there yet");
    let refused = bench.make("second", large, 60, Reuse::IfPresent).await;
    let fault = refused.err().expect("the first one is used");
    assert!(fault.message.contains("the limit is 1 MiB"), "{fault:?}");
    assert!(fault.hint.is_some_and(|hint| hint.contains("mcp rm")));
    drop(first);
    let second = bench.make("second", large, 60, Reuse::IfPresent).await;
    second.expect("the first one has gone");
    assert_eq!(bench.cached(), 1);
}

#[tokio::test]
async fn a_reinstall_keeps_the_old_install_for_running_servers() {
    let bench = Bench::new();
    let old = bench
        .make("key", "echo 1 > /opt/mcp/v", 60, Reuse::IfPresent)
        .await;
    let old = old.expect("installed");
    let failed = bench.make("key", "exit 1", 60, Reuse::Never).await;
    assert!(failed.is_err());
    let new = bench
        .make("key", "echo 2 > /opt/mcp/v", 60, Reuse::Never)
        .await;
    let new = new.expect("installed");
    let found = bench.make("key", "exit 1", 60, Reuse::IfPresent).await;
    assert_eq!(found.expect("there").directory, new.directory);
    bench.context.drop_install(old.cache_ref.name.clone()).await;
    assert!(old.directory.join("v").exists(), "it is in use");
    let name = old.cache_ref.name.clone();
    let directory = old.directory.clone();
    drop(old);
    bench.context.drop_install(name).await;
    assert!(!directory.exists() && new.directory.exists());
}

#[tokio::test]
async fn old_installs_are_removed_and_active_ones_stay() {
    let bench = Bench::new();
    let old = bench
        .install("touch /opt/mcp/tool", 60)
        .await
        .expect("installed");
    let making = bench.context.cache.create_directory().expect("a directory");
    std::fs::create_dir(bench.dir.path().join("mcp/cache/.new-left")).expect("made");
    bench.context.tidy().await;
    assert!(old.exists() && making.exists());
    assert_eq!(bench.cached(), 2, "abandoned installs are removed");
    let noted = bench.dir.path().join("mcp/sizes/key");
    let long_ago = std::time::SystemTime::now() - Duration::from_hours(30);
    let noted = std::fs::File::options().write(true).open(noted);
    noted
        .and_then(|noted| noted.set_modified(long_ago))
        .expect("set");
    // Another start uses it.
    bench.install("exit 1", 60).await.expect("found");
    bench.context.tidy().await;
    assert!(old.exists());
    let noted = bench.dir.path().join("mcp/sizes/key");
    let noted = std::fs::File::options().write(true).open(noted);
    noted
        .and_then(|noted| noted.set_modified(long_ago))
        .expect("set");
    bench.context.tidy().await;
    assert!(!old.exists());
}

impl Fixture {
    fn installs(&self) -> usize {
        let executed = self.runtime.executed();
        executed.iter().filter(|script| is_install(script)).count()
    }

    /// Waits until a later start has connected.
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
async fn a_server_is_reinstalled_on_request_or_for_another_box() {
    let fixture = Fixture::new();
    let server = fixture
        .add(json!({
            "name": "real", "command": "python", "args": ["-c", "import os; exec(os.environ['CODE'])"],
            "env": {"CODE": SERVER},
        }))
        .await;
    fixture.until_status(&server, McpStatus::Connected).await;
    assert_eq!(fixture.installs(), 1);

    let boxes = fixture.boxes_made();
    fixture.hosting.restart(&server).await.expect("restarted");
    fixture.started_again(&server, boxes).await;
    assert_eq!(fixture.installs(), 1, "what is there will do");

    let boxes = fixture.boxes_made();
    fixture.hosting.reinstall(&server).await.expect("restarted");
    fixture.started_again(&server, boxes).await;
    assert_eq!(fixture.installs(), 2);
    let boxes = fixture.boxes_made();
    fixture.hosting.restart(&server).await.expect("restarted");
    fixture.started_again(&server, boxes).await;
    assert_eq!(fixture.installs(), 2, "it was asked for once");

    // The profile's image changes.
    "other".clone_into(&mut fixture.runtime.image.lock().expect("no panic"));
    let boxes = fixture.boxes_made();
    fixture.hosting.restart(&server).await.expect("restarted");
    fixture.started_again(&server, boxes).await;
    assert_eq!(fixture.installs(), 3);
    fixture.hosting.close().await;
}

#[tokio::test]
async fn an_install_whose_program_does_not_start_is_replaced() {
    let fixture = Fixture::with(|settings| settings.retry_delays = [Duration::from_millis(1); 3]);
    let server = fixture
        .add(json!({
            "name": "real", "command": "python", "args": ["-c", "import os; exec(os.environ['CODE'])"],
            "env": {"CODE": SERVER},
        }))
        .await;
    fixture.until_status(&server, McpStatus::Connected).await;
    let cache = fixture.dir.path().join("mcp/cache");
    let install = std::fs::read_dir(cache).expect("listed").next();
    let entry = install
        .expect("an install")
        .expect("read")
        .path()
        .join(".entry");
    std::fs::write(entry, "command=/no/such/python3.11\n").expect("written");
    let boxes = fixture.boxes_made();
    fixture.hosting.restart(&server).await.expect("restarted");
    fixture.started_again(&server, boxes).await;
    assert_eq!(fixture.installs(), 2);
    fixture.hosting.close().await;
}

#[tokio::test]
async fn a_failed_reinstall_keeps_the_old_install() {
    let fixture = Fixture::with(|settings| settings.retry_delays = [Duration::from_millis(1); 3]);
    let server = fixture
        .add(json!({
            "name": "real", "command": "python", "args": ["-c", "import os; exec(os.environ['CODE'])"],
            "env": {"CODE": SERVER},
        }))
        .await;
    fixture.until_status(&server, McpStatus::Connected).await;
    fixture.runtime.install_fails.store(true, Ordering::Relaxed);
    fixture.hosting.reinstall(&server).await.expect("under way");
    let failed = fixture.until_status(&server, McpStatus::Error).await;
    assert_eq!(failed.error_phase, Some(McpPhase::DepInstall));
    fixture.hosting.start(&server).await.expect("under way");
    let started = fixture.until(&server, is_settled).await;
    assert_eq!(started.status, McpStatus::Connected, "{started:#?}");

    // A restart without reinstall uses the old install at once.
    fixture.hosting.reinstall(&server).await.expect("under way");
    fixture.hosting.stop(&server).await.expect("stopped");
    fixture.hosting.start(&server).await.expect("under way");
    let started = fixture.until(&server, is_settled).await;
    assert_eq!(started.status, McpStatus::Connected, "{started:#?}");
    fixture.hosting.close().await;
}

#[tokio::test]
async fn a_refused_reinstall_is_not_repeated_later() {
    let fixture = Fixture::new();
    let server = fixture
        .add(json!({
            "name": "real", "command": "python", "args": ["-c", "import os; exec(os.environ['CODE'])"],
            "env": {"CODE": SERVER},
        }))
        .await;
    fixture.until_status(&server, McpStatus::Connected).await;
    let edit =
        |enabled: bool| serde_json::from_value(json!({"enabled": enabled})).expect("an edit");
    fixture
        .hosting
        .edit(&server, edit(false))
        .await
        .expect("off");
    let refused = fixture.hosting.reinstall(&server).await;
    assert!(
        matches!(refused, Err(HostingError::Disabled { .. })),
        "{refused:?}"
    );
    fixture.hosting.edit(&server, edit(true)).await.expect("on");
    fixture.until_status(&server, McpStatus::Connected).await;
    assert_eq!(fixture.installs(), 1);
    fixture.hosting.close().await;
}

fn is_settled(runtime: &McpRuntimeInfo) -> bool {
    matches!(runtime.status, McpStatus::Connected | McpStatus::Error)
}

#[tokio::test]
async fn large_installer_output_is_redacted_without_blocking() {
    let mut bench = Bench::new();
    let value = |number| format!("{number:02000}");
    bench.spec.env = (0..500)
        .map(|number| (format!("V{number}"), value(number)))
        .collect();
    let script = format!("yes a | head -n 20000; echo {} > /dev/stderr", value(7));
    bench.install(&script, 20).await.expect("installed in time");
    let log = bench.progress_log.install_log();
    assert!(log.contains("a\na\n") && log.contains("[V7]"), "{log}");
}

#[tokio::test]
async fn installs_of_tests_from_directories_are_not_shared() {
    let fixture = Fixture::new();
    let project = fixture.dir.path().join("project");
    std::fs::create_dir(&project).expect("made");
    for (file, text) in [("requirements.txt", "# nothing\n"), ("server.py", SERVER)] {
        std::fs::write(project.join(file), text).expect("written");
    }
    let spec = json!({"name": "real", "command": "python", "args": [project.join("server.py")]});
    let (tell, _told) = mpsc::channel(64);
    // The program's path is in the box, so it cannot be started here.
    let tested = fixture.hosting.test(spec_of(spec), tell).await;
    let tested = tested.expect("tested");
    let phase = tested.runtime.error_phase;
    assert_eq!(phase, Some(McpPhase::ProcessStart), "{}", tested.log);
    assert_eq!(fixture.installs(), 1);
    let removed = async {
        while fixture.entries("cache") > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let removed = tokio::time::timeout(Duration::from_secs(30), removed).await;
    removed.expect("removed with the test");
}

#[tokio::test]
async fn tests_share_only_installs_from_registries() {
    let bench = Bench::new();
    let project = bench.dir.path().join("project");
    std::fs::create_dir(&project).expect("made");
    std::fs::write(project.join("requirements.txt"), "mcp\n").expect("written");
    std::fs::write(project.join("server.py"), "").expect("written");
    let clock = StartClock::start(60);
    let key = async |spec: &McpServerSpec, session: SessionId, lifetime: BoxLifetime| {
        let start = Start {
            context: &bench.context,
            state: &state_of(spec, session),
            spec,
            lifetime,
        };
        let plan = launch::plan(spec, &launch::tools_of_this_host()).expect("a plan");
        let install = plan.install.expect("there is one");
        let key = start.key(&clock, &install).await;
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
        let state = key(&spec, ids::session_of(&spec.name), BoxLifetime::Persistent).await;
        let one = key(&spec, ids::test_session(), BoxLifetime::Test).await;
        let other = key(&spec, ids::test_session(), BoxLifetime::Test).await;
        assert_eq!(
            (state == one, one == other),
            (is_shared, is_shared),
            "{spec:?}"
        );
    }
}
