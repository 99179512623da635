//! Leftovers are removed and nothing else.

use std::fs::{self, File};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use boxwood_api::{McpServerSpec, McpStatus, SessionId, SpecRequest};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{FakeServer, Fixture, spec_of};
use crate::hosting::boxes::ids;
use crate::hosting::boxes::temporary_box::TemporaryBox;
use crate::hosting::context::HostContext;
use crate::hosting::{Hosting, HostingSettings, Runtime as _};

impl Fixture {
    /// Never answers.
    fn unresponsive(&self) -> McpServerSpec {
        let unresponsive = FakeServer {
            stops_responding_after: Some(Duration::ZERO),
            ..FakeServer::default()
        };
        self.add_program("deaf", unresponsive);
        spec_of(json!({"name": "server", "command": "deaf"}))
    }

    /// Cancels a test once it has its box.
    async fn gives_a_test_up(&self, meanwhile: impl FnOnce()) {
        let (tell, _told) = mpsc::channel(64);
        let mut test = Box::pin(self.hosting.test(self.unresponsive(), tell));
        let early = tokio::time::timeout(Duration::from_secs(10), &mut test).await;
        assert!(early.is_err(), "it does not answer");
        assert_eq!(self.runtime.names().len(), 1);
        meanwhile();
    }

    fn removing_takes(&self, time: Duration) {
        *self.runtime.delete_takes.lock().expect("no panic") = time;
    }

    fn removing_fails(&self, times: usize) {
        self.runtime.delete_fails.store(times, Ordering::Relaxed);
    }

    /// Another daemon with the same state directory.
    fn again(&self) -> Hosting {
        let settings = HostingSettings::new(self.dir.path().join("mcp"));
        let hosting = Hosting::new(Arc::clone(&self.runtime) as _, settings);
        let hosting = hosting.expect("hosting");
        hosting.begin();
        hosting
    }
}

#[tokio::test(start_paused = true)]
async fn the_box_of_a_cancelled_test_is_forgotten_after_its_removal() {
    let fixture = Fixture::new();
    fixture
        .gives_a_test_up(|| fixture.removing_takes(Duration::from_secs(30)))
        .await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(fixture.runtime.names().len(), 1, "it is not yet removed");
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(fixture.runtime.names().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_box_that_cannot_be_removed_is_removed_later() {
    let fixture = Fixture::new();
    fixture.gives_a_test_up(|| fixture.removing_fails(1)).await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(fixture.runtime.names().len(), 1);
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!(fixture.runtime.names().len(), 0);
    assert_eq!(fixture.runtime.names(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_test_reports_if_its_box_could_not_be_removed() {
    let fixture = Fixture::new();
    // Both the deletion and its first retry fail.
    fixture.removing_fails(2);
    let (tell, _told) = mpsc::channel(64);
    let well = spec_of(json!({"name": "server", "command": "well"}));
    let tested = fixture.hosting.test(well, tell).await;
    let hint = tested.expect("tested").runtime.hint.expect("a hint");
    assert!(hint.contains("could not be removed"), "{hint}");
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(fixture.runtime.names().len(), 1);
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!(fixture.runtime.names().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn running_tests_are_not_cleaned_up() {
    let fixture = Fixture::new();
    let (tell, _told) = mpsc::channel(64);
    let mut test = Box::pin(fixture.hosting.test(fixture.unresponsive(), tell));
    let early = tokio::time::timeout(Duration::from_secs(10), &mut test).await;
    assert!(early.is_err(), "it does not answer");
    fixture.hosting.inner.context.tidy().await;
    assert_eq!(fixture.runtime.names().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_partial_install_stays_as_long_as_its_box() {
    let fixture = Fixture::new();
    let context: &Arc<HostContext> = &fixture.hosting.inner.context;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let installer = ids::install_session();
    let directory = context.cache.create_directory().expect("a directory");
    let partial = TemporaryBox::named(context, installer.clone()).with_directory(directory);
    let spec = SpecRequest {
        session_id: Some(installer),
        ..SpecRequest::default()
    };
    let created = fixture.runtime.create(spec, Vec::new()).await;
    created.expect("created");
    // Both the drop and the cleanup fail.
    fixture.removing_fails(2);
    drop(partial);
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(
        (fixture.entries("cache"), fixture.runtime.names().len()),
        (1, 1)
    );
    context.tidy().await;
    assert_eq!(
        (fixture.entries("cache"), fixture.runtime.names().len()),
        (1, 1)
    );
    context.tidy().await;
    assert_eq!(
        (fixture.entries("cache"), fixture.runtime.names().len()),
        (0, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_server_keeps_its_data() {
    let fixture = Fixture::new();
    fixture.add_connected("time").await;
    fixture.hosting.close().await;
    let mcp = fixture.dir.path().join("mcp");
    // It runs from an install that is otherwise unused.
    let handshake = mcp.join("greetings/time.json");
    let text = fs::read(&handshake).expect("a file");
    let mut run: Value = serde_json::from_slice(&text).expect("JSON");
    run["cache_key"] = json!("abc");
    fs::write(&handshake, run.to_string()).expect("written");
    for install in ["abc", "other"] {
        fs::create_dir(mcp.join("cache").join(install)).expect("an install");
        let size = mcp.join("sizes").join(install);
        fs::write(&size, "1").expect("written");
        let noted = File::options().write(true).open(&size).expect("opened");
        let long_ago = SystemTime::now() - Duration::from_hours(48);
        noted.set_modified(long_ago).expect("set");
    }
    fs::write(mcp.join("servers/time.json"), "{").expect("written");
    let main = fixture.runtime.process("mcp-time", "main");
    let main = main.expect("a process");

    let hosting = fixture.again();
    assert_eq!(hosting.inner.unread.len(), 1);
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert!(main.is_running());
    assert_eq!(fixture.runtime.names(), ["mcp-time"]);
    assert_eq!(fixture.runtime.names().len(), 1);
    assert!(mcp.join("cache/abc").exists());
    assert!(!mcp.join("cache/other").exists(), "it is unused");

    // Adding it again creates no second box, even if it is disabled.
    let spec = json!({"name": "time", "command": "well", "enabled": false});
    hosting.add(spec_of(spec), false).await.expect("added");
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert!(!main.is_running());
    assert_eq!(fixture.runtime.names(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_server_added_again_is_not_a_leftover() {
    let fixture = Fixture::new();
    // The first daemon's own cleanup has ended.
    tokio::time::sleep(Duration::from_secs(5)).await;
    for server in ["a", "b", "c"] {
        let session = SessionId::new(&format!("mcp-{server}")).expect("an id");
        let spec = SpecRequest {
            session_id: Some(session.clone()),
            ..SpecRequest::default()
        };
        let created = fixture.runtime.create(spec, Vec::new()).await;
        created.expect("created");
    }
    fixture.removing_takes(Duration::from_secs(30));
    let fixture = Fixture {
        hosting: fixture.again(),
        ..fixture
    };
    // During the cleanup of the others.
    let back = fixture.add(json!({"name": "c", "command": "well"})).await;
    fixture.until_status(&back, McpStatus::Connected).await;
    let main = fixture.runtime.process("mcp-c", "main").expect("a process");
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert!(main.is_running());
    assert_eq!(fixture.runtime.names(), ["mcp-c"]);
}
