//! Copies of directories, given up and made again.

use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use boxwood_api::{McpPhase, McpServerSpec, McpStatus, SessionId};
use serde_json::json;

use super::runtime::TestRuntime;
use super::{Habits, House, spec_of};
use crate::hosting::HostingSettings;
use crate::hosting::box_spec::Lasts;
use crate::hosting::copies::AT_ONCE;
use crate::hosting::kit::Kit;
use crate::hosting::launch::{self, HostFacts, HostPath, Staging};
use crate::hosting::starting::Start;
use crate::hosting::track::Track;
use crate::wire::ProtocolLog;

struct Bench {
    dir: tempfile::TempDir,
    kit: Arc<Kit>,
    session: SessionId,
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let settings = HostingSettings::new(dir.path().join("mcp"));
        let kit = Kit::open(Arc::new(TestRuntime::default()), settings).expect("a kit");
        Self {
            dir,
            kit,
            session: SessionId::new("mcp-time").expect("an id"),
        }
    }

    fn directory(&self, name: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::create_dir_all(&path).expect("made");
        path
    }

    /// Takes much longer to copy than anybody waits here.
    fn slow(&self) -> PathBuf {
        let slow = self.directory("slow/a");
        for number in 0..5000 {
            File::create(slow.join(number.to_string())).expect("made");
        }
        slow
    }

    async fn copy(&self, directories: &[&Path]) -> PathBuf {
        let copied = self.kit.copy(&self.session, parts(directories)).await;
        copied.expect("copied").place
    }

    fn copies(&self) -> usize {
        let work = self.dir.path().join("mcp/work");
        fs::read_dir(work).expect("listed").count()
    }
}

/// As a server that names these directories has them copied.
fn parts(directories: &[&Path]) -> Vec<(Staging, Arc<OwnedFd>)> {
    let spec: McpServerSpec =
        spec_of(json!({"name": "time", "command": "server", "args": directories}));
    let plan = launch::plan(&spec, &HostFacts::of_this_host()).expect("a plan");
    let Some(HostPath::Staged(parts)) = plan.host_path else {
        panic!("{:?}", plan.host_path);
    };
    parts
        .into_iter()
        .map(|part| {
            let handle: OwnedFd = File::open(&part.from).expect("opened").into();
            (part, Arc::new(handle))
        })
        .collect()
}

#[tokio::test]
async fn a_copy_that_was_given_up_does_no_harm_to_the_next_one() {
    let bench = Bench::new();
    // It takes a while, and then it fails and clears up behind itself.
    let slow = bench.slow();
    let mut deep = slow.join("z");
    deep.extend(std::iter::repeat_n("d", 200));
    fs::create_dir_all(&deep).expect("made");
    let small = bench.directory("small");
    fs::write(small.join("server.py"), "it").expect("written");

    for _ in 0..3 {
        let given_up = bench.kit.copy(&bench.session, parts(&[&slow]));
        let given_up = tokio::time::timeout(Duration::from_millis(10), given_up).await;
        assert!(given_up.is_err(), "it takes longer");
        let copy = bench.copy(&[&small]).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        let names: Vec<_> = fs::read_dir(&copy)
            .expect("it stayed")
            .map(|entry| entry.expect("listed").file_name())
            .collect();
        assert_eq!(names, ["server.py"]);
    }
}

#[tokio::test]
async fn a_server_goes_with_the_copy_that_is_being_made_for_it() {
    let bench = Bench::new();
    let slow = bench.slow();
    let given_up = bench.kit.copy(&bench.session, parts(&[&slow]));
    let given_up = tokio::time::timeout(Duration::from_millis(10), given_up).await;
    assert!(given_up.is_err(), "it takes longer");
    bench.kit.remove_work(&bench.session).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(bench.copies(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_start_touches_nothing_of_the_host_while_its_file_system_holds_every_thread() {
    let bench = Bench::new();
    let room = u32::try_from(AT_ONCE).expect("few");
    let taken = bench.kit.copy_room.acquire_many(room).await.expect("room");
    let spec = spec_of(json!({"name": "time", "command": "no-such-program"}));
    let (track, protocol) = (Track::new(), Arc::new(ProtocolLog::default()));
    let start = Start {
        kit: &bench.kit,
        spec: &spec,
        session: &bench.session,
        lasts: Lasts::UntilRemoved,
        track: &track,
        protocol: &protocol,
    };
    let fault = start.run().await.err().expect("it ran out of time");
    assert_eq!(fault.phase, McpPhase::SessionCreate);
    assert!(fault.message.contains("timeout"), "{}", fault.message);
    drop(taken);
    let fault = start.run().await.err().expect("there is no such program");
    assert_ne!(fault.phase, McpPhase::SessionCreate, "{}", fault.message);
}

#[tokio::test]
async fn a_look_that_never_ends_keeps_its_room() {
    let bench = Bench::new();
    let (end, ends) = std::sync::mpsc::channel::<()>();
    let look = bench.kit.on_host(move || ends.recv().is_err());
    let given_up = tokio::time::timeout(Duration::from_millis(50), look).await;
    assert!(given_up.is_err());
    assert_eq!(bench.kit.copy_room.available_permits(), AT_ONCE - 1);
    drop(end);
    let room = u32::try_from(AT_ONCE).expect("few");
    let all = bench.kit.copy_room.acquire_many(room).await;
    drop(all.expect("it comes back"));
}

#[tokio::test(start_paused = true)]
async fn a_copy_is_gone_with_its_box() {
    let house = House::new();
    house.knows("doomed", Habits::living([Some(0)]));
    let data = house.dir.path().join("data");
    fs::create_dir(&data).expect("made");
    let time = json!({"name": "time", "command": "well", "args": [data], "idle_stop_sec": 60});
    let time = house.add(time).await;
    house.until_status(&time, McpStatus::Connected).await;
    assert_eq!(house.entries("work"), 1);
    house.until_status(&time, McpStatus::Stopped).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(house.entries("work"), 0, "nobody calls it");
    house.hosting.start(&time).await.expect("started");
    house.until_status(&time, McpStatus::Connected).await;
    assert_eq!(house.entries("work"), 1);
    house.hosting.stop(&time).await.expect("stopped");
    assert_eq!(house.entries("work"), 0, "it was stopped");

    let doomed = json!({"name": "doomed", "command": "doomed", "args": [data]});
    let doomed = house.add(doomed).await;
    house.until_status(&doomed, McpStatus::Error).await;
    assert_eq!(house.entries("work"), 0, "it failed");
}

#[tokio::test(start_paused = true)]
async fn a_copy_is_gone_where_its_program_is_not_there() {
    let house = House::new();
    let data = house.dir.path().join("data");
    fs::create_dir(&data).expect("made");
    let time = json!({"name": "time", "command": "no-such-program", "args": [data]});
    let time = house.add(time).await;
    house.until_status(&time, McpStatus::Error).await;
    assert_eq!(house.entries("work"), 0);
}
