//! What nobody has any more goes, and nothing else.

use std::fs::{self, File};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use boxwood_api::{McpServerSpec, McpStatus, SessionId, SpecRequest};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{Habits, House, spec_of};
use crate::hosting::kit::Kit;
use crate::hosting::naming;
use crate::hosting::unfinished::Unfinished;
use crate::hosting::{Hosting, HostingSettings, Runtime as _};

impl House {
    /// Works on a copy, and does not answer.
    fn deaf_on_a_copy(&self) -> McpServerSpec {
        let deaf = Habits {
            deaf_after: Some(Duration::ZERO),
            ..Habits::default()
        };
        self.knows("deaf", deaf);
        self.on_a_copy("deaf")
    }

    fn on_a_copy(&self, program: &str) -> McpServerSpec {
        let project = self.dir.path().join("project");
        fs::create_dir_all(&project).expect("made");
        fs::write(project.join("data"), "x").expect("written");
        spec_of(json!({"name": "server", "command": program, "args": [project]}))
    }

    /// A test that somebody loses patience with, once it has its box and its copy.
    async fn gives_a_test_up(&self, meanwhile: impl FnOnce()) {
        let (tell, _told) = mpsc::channel(64);
        let mut test = Box::pin(self.hosting.test(self.deaf_on_a_copy(), tell));
        let early = tokio::time::timeout(Duration::from_secs(10), &mut test).await;
        assert!(early.is_err(), "it does not answer");
        assert_eq!((self.entries("work"), self.entries("boxes")), (1, 1));
        meanwhile();
    }

    fn removing_takes(&self, time: Duration) {
        *self.runtime.delete_takes.lock().expect("no panic") = time;
    }

    fn removing_fails(&self, times: usize) {
        self.runtime.delete_fails.store(times, Ordering::Relaxed);
    }

    /// Another daemon at the same place.
    fn again(&self) -> Hosting {
        let settings = HostingSettings::new(self.dir.path().join("mcp"));
        let hosting = Hosting::new(Arc::clone(&self.runtime) as _, settings);
        let hosting = hosting.expect("hosting");
        hosting.begin();
        hosting
    }
}

#[tokio::test(start_paused = true)]
async fn the_copy_of_a_test_goes_after_its_box() {
    let house = House::new();
    house
        .gives_a_test_up(|| house.removing_takes(Duration::from_secs(30)))
        .await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(house.entries("work"), 1, "its box may still write to it");
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!((house.entries("work"), house.entries("boxes")), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_box_that_could_not_be_removed_keeps_its_copy_until_it_is() {
    let house = House::new();
    house.gives_a_test_up(|| house.removing_fails(1)).await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!((house.entries("work"), house.entries("boxes")), (1, 1));
    assert_eq!(house.runtime.names().len(), 1);
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!((house.entries("work"), house.entries("boxes")), (0, 0));
    assert_eq!(house.runtime.names(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_test_that_ended_says_that_its_box_stays_for_now() {
    let house = House::new();
    // Both when it ends and right after that.
    house.removing_fails(2);
    let (tell, _told) = mpsc::channel(64);
    let tested = house.hosting.test(house.on_a_copy("well"), tell).await;
    let hint = tested.expect("tested").runtime.hint.expect("a hint");
    assert!(hint.contains("could not be removed"), "{hint}");
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!((house.entries("work"), house.entries("boxes")), (1, 1));
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!((house.entries("work"), house.entries("boxes")), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn what_is_tested_now_is_not_swept() {
    let house = House::new();
    let (tell, _told) = mpsc::channel(64);
    let mut test = Box::pin(house.hosting.test(house.deaf_on_a_copy(), tell));
    let early = tokio::time::timeout(Duration::from_secs(10), &mut test).await;
    assert!(early.is_err(), "it does not answer");
    house.hosting.inner.kit.tidy().await;
    assert_eq!((house.entries("work"), house.entries("boxes")), (1, 1));
    assert_eq!(house.runtime.names().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn half_an_install_stays_while_its_box_does() {
    let house = House::new();
    let kit: &Arc<Kit> = &house.hosting.inner.kit;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let installer = naming::install_session();
    let unfinished = Unfinished::begin(kit, installer.clone()).await;
    let unfinished = unfinished.expect("begun");
    let spec = SpecRequest {
        session_id: Some(installer),
        ..SpecRequest::default()
    };
    let session = unfinished.installer().clone();
    kit.create_box(&session, spec, Vec::new())
        .await
        .expect("created");
    // Once when it is given up, once when it is swept.
    house.removing_fails(2);
    drop(unfinished);
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!((house.entries("cache"), house.entries("boxes")), (1, 1));
    kit.tidy().await;
    assert_eq!((house.entries("cache"), house.entries("boxes")), (1, 1));
    kit.tidy().await;
    assert_eq!((house.entries("cache"), house.entries("boxes")), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_cannot_be_read_loses_nothing() {
    let house = House::new();
    house.well("time").await;
    house.hosting.close().await;
    let mcp = house.dir.path().join("mcp");
    fs::create_dir(mcp.join("work/mcp-time")).expect("a copy");
    // It runs from an install that nobody has asked for since.
    let greeting = mcp.join("greetings/time.json");
    let text = fs::read(&greeting).expect("a file");
    let mut run: Value = serde_json::from_slice(&text).expect("JSON");
    run["cache_key"] = json!("abc");
    fs::write(&greeting, run.to_string()).expect("written");
    for install in ["abc", "other"] {
        fs::create_dir(mcp.join("cache").join(install)).expect("an install");
        let size = mcp.join("sizes").join(install);
        fs::write(&size, "1").expect("written");
        let noted = File::options().write(true).open(&size).expect("opened");
        let long_ago = SystemTime::now() - Duration::from_hours(48);
        noted.set_modified(long_ago).expect("set");
    }
    fs::write(mcp.join("servers/time.json"), "{").expect("written");
    let main = house.runtime.process("mcp-time", "main");
    let main = main.expect("a process");

    let hosting = house.again();
    assert_eq!(hosting.notices().len(), 1);
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert!(main.is_running());
    assert_eq!(house.runtime.names(), ["mcp-time"]);
    assert_eq!((house.entries("work"), house.entries("boxes")), (1, 1));
    assert!(mcp.join("cache/abc").exists());
    assert!(!mcp.join("cache/other").exists(), "nobody runs from it");

    // Added again, it has no second box, also when it does not run.
    let spec = json!({"name": "time", "command": "well", "enabled": false});
    hosting.add(spec_of(spec), false).await.expect("added");
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert!(!main.is_running());
    assert_eq!(house.runtime.names(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_came_back_is_not_taken_for_what_was_left() {
    let house = House::new();
    for server in ["a", "b", "c"] {
        let session = SessionId::new(&format!("mcp-{server}")).expect("an id");
        let spec = SpecRequest {
            session_id: Some(session.clone()),
            ..SpecRequest::default()
        };
        let created = house.runtime.create(spec, Vec::new()).await;
        created.expect("created");
        let journal = &house.hosting.inner.kit.journal;
        journal.note(&session).expect("noted");
    }
    house.removing_takes(Duration::from_secs(30));
    let house = House {
        hosting: house.again(),
        ..house
    };
    // While the others are cleared away.
    let back = house.add(json!({"name": "c", "command": "well"})).await;
    house.until_status(&back, McpStatus::Connected).await;
    let main = house.runtime.process("mcp-c", "main").expect("a process");
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert!(main.is_running());
    assert_eq!(house.runtime.names(), ["mcp-c"]);
    assert_eq!(house.entries("boxes"), 1);
}
