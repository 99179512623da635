//! Processes beside the main one.

use std::time::Duration;

use serde_json::json;
use serde_json::value::RawValue;

use super::{Habits, House};
use crate::hosting::HostingError;
use crate::wire::{Ask, CallError, Ended, Era, Heard, Message};

fn initialize() -> Box<RawValue> {
    let params = json!({
        "protocolVersion": "2025-06-18",
        "capabilities": {"roots": {}},
        "clientInfo": {"name": "editor", "version": "1"},
    });
    RawValue::from_string(params.to_string()).expect("JSON")
}

#[tokio::test(start_paused = true)]
async fn a_client_that_can_be_asked_has_a_process_of_its_own() {
    let house = House::new();
    let asks = Habits {
        asks_for_roots: true,
        ..Habits::default()
    };
    house.knows("asks", asks);
    let asks = house.add(json!({"name": "asks", "command": "asks"})).await;
    let server = house.hosting.server(&asks).await.expect("a server");
    let mut child = server.own(initialize()).await.expect("a child");
    assert_eq!(child.greeting.protocol_version, "2025-06-18");
    let Heard::Message(question) = child.inbound.next().await else {
        panic!("it asked nothing");
    };
    assert_eq!(question.method(), Some("roots/list"));
    let id = question.id().expect("an id").to_owned();
    let roots = RawValue::from_string("{\"roots\":[]}".to_owned()).expect("JSON");
    let answer = Message::result(id, roots);
    child.connection.respond(answer).await.expect("answered");
    assert_eq!(house.runtime.running("mcp-asks").len(), 2);
    drop(child);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(house.runtime.running("mcp-asks"), ["main"]);
}

#[tokio::test(start_paused = true)]
async fn what_a_process_of_one_client_complains_of_is_shown() {
    let house = House::new();
    let complains = Habits {
        // The main process lives, the first of a client's ends before it has greeted.
        lives: vec![None, Some(Duration::from_secs(1)), None],
        slow_runs: vec![1],
        greets_after: Duration::from_secs(5),
        complains: "the key sesame-open is not known\n",
        ..Habits::default()
    };
    house.knows("complains", complains);
    let spec = json!({"name": "c", "command": "complains", "env": {"KEY": "sesame-open"}});
    let name = house.add(spec).await;
    let server = house.hosting.server(&name).await.expect("a server");
    let refused = server.own(initialize()).await.err().expect("it ended");
    let words = refused.to_string();
    assert!(words.contains("is not known"), "{words}");
    assert!(!words.contains("sesame-open"), "{words}");
    let child = server.own(initialize()).await.expect("a child");
    let shown = async || {
        let logs = house.hosting.logs(&name).await.expect("logs");
        assert!(!logs.stderr.contains("sesame-open"), "{}", logs.stderr);
        let own = logs.stderr.matches("--- own-").count();
        (own, logs.stderr.matches("is not known").count())
    };
    assert_eq!(shown().await, (2, 3));
    drop(child);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(house.runtime.running("mcp-c"), ["main"]);
    assert_eq!(shown().await, (2, 3), "it is shown when they are gone, too");
}

#[tokio::test(start_paused = true)]
async fn children_are_bounded_and_idle_ones_end() {
    let house = House::with(|settings| settings.max_children = 2);
    let time = house.well("time").await;
    let server = house.hosting.server(&time).await.expect("a server");
    let first = server.own(initialize()).await.expect("a child");
    let second = server.own(initialize()).await.expect("a child");
    let refused = server.own(initialize()).await.err().expect("no room");
    assert!(matches!(refused, HostingError::Full { .. }), "{refused:?}");
    // One is spoken to, the other is not.
    for _ in 0..4 {
        tokio::time::sleep(Duration::from_secs(100)).await;
        let ask = Ask::within(Duration::from_secs(5));
        first
            .connection
            .request("ping", None, ask)
            .await
            .expect("an answer");
    }
    assert!(!first.connection.is_ended());
    assert!(second.connection.is_ended());
    assert_eq!(house.runtime.running("mcp-time").len(), 2);
    server.own(initialize()).await.expect("there is room again");
}

#[tokio::test(start_paused = true)]
async fn a_child_that_is_given_up_while_it_starts_is_stopped() {
    let house = House::new();
    let slow = Habits {
        greets_after: Duration::from_secs(20),
        ..Habits::default()
    };
    house.knows("slow", slow);
    let slow = house.add(json!({"name": "slow", "command": "slow"})).await;
    let server = house.hosting.server(&slow).await.expect("a server");
    let given_up = tokio::time::timeout(Duration::from_secs(5), server.own(initialize())).await;
    assert!(given_up.is_err());
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(house.runtime.running("mcp-slow"), ["main"]);
}

#[tokio::test(start_paused = true)]
async fn a_server_of_both_eras_has_one_process_for_modern_clients() {
    let house = House::new();
    let both = Habits {
        is_modern: true,
        ..Habits::default()
    };
    house.knows("both", both);
    let both = house.add(json!({"name": "both", "command": "both"})).await;
    let server = house.hosting.server(&both).await.expect("a server");
    assert_eq!(
        server.greeting().era,
        Era::Legacy,
        "every real server knows `initialize`"
    );
    let (first, second) = tokio::join!(server.modern(), server.modern());
    let (first, greeting) = first.expect("asked").expect("it knows");
    let (second, _) = second.expect("asked").expect("it knows");
    assert_eq!(greeting.era, Era::Modern);
    assert_eq!(first.id(), second.id(), "they share it");
    assert_eq!(house.runtime.running("mcp-both"), ["main", "modern"]);
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert_eq!(
        house.runtime.running("mcp-both"),
        ["main"],
        "nobody spoke to it"
    );
    server
        .modern()
        .await
        .expect("asked")
        .expect("it is started again");
}

#[tokio::test(start_paused = true)]
async fn a_process_for_modern_clients_that_hangs_is_replaced() {
    let house = House::new();
    let hangs = Habits {
        is_modern: true,
        deaf_after: Some(Duration::from_secs(10)),
        // The first for modern clients.
        deaf_run: Some(1),
        ..Habits::default()
    };
    house.knows("hangs", hangs);
    let hangs = house
        .add(json!({"name": "hangs", "command": "hangs"}))
        .await;
    let server = house.hosting.server(&hangs).await.expect("a server");
    let modern = async || server.modern().await.expect("asked").expect("it knows").0;
    let first = modern().await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    let hour = Ask::within(Duration::from_hours(1));
    let late = first.request("tools/list", None, hour.clone()).await;
    assert!(matches!(late, Err(CallError::TimedOut { .. })), "{late:?}");
    assert!(!first.is_ended(), "it may have been at work");
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert!(first.is_ended(), "nothing was heard of it");
    let next = modern().await;
    next.request("tools/list", None, hour)
        .await
        .expect("a list");
    assert_eq!(house.runtime.running("mcp-hangs"), ["main", "modern"]);
    assert!(!server.main().is_ended(), "the others never noticed");
}

#[tokio::test(start_paused = true)]
async fn a_process_of_one_client_that_hangs_is_given_up() {
    let house = House::new();
    let hangs = Habits {
        deaf_after: Some(Duration::from_secs(10)),
        // The first beside the main one.
        deaf_run: Some(1),
        ..Habits::default()
    };
    house.knows("hangs", hangs);
    let hangs = house
        .add(json!({"name": "hangs", "command": "hangs"}))
        .await;
    let server = house.hosting.server(&hangs).await.expect("a server");
    let first = server.own(initialize()).await.expect("a child");
    let second = server.own(initialize()).await.expect("a child");
    tokio::time::sleep(Duration::from_mins(4)).await;
    assert!(first.connection.is_ended(), "nothing was heard of it");
    assert!(!second.connection.is_ended() && !server.main().is_ended());
}

#[tokio::test(start_paused = true)]
async fn a_process_of_one_client_that_takes_no_more_input_ends_the_call() {
    let house = House::new();
    let closes = Habits {
        closes_input_after: Some(Duration::from_secs(10)),
        ..Habits::default()
    };
    house.knows("closes", closes);
    let closes = house
        .add(json!({"name": "closes", "command": "closes"}))
        .await;
    let server = house.hosting.server(&closes).await.expect("a server");
    let child = server.own(initialize()).await.expect("a child");
    let params = json!({"name": "wait", "arguments": {"seconds": 100_000}});
    let params = RawValue::from_string(params.to_string()).expect("JSON");
    let hour = Ask::within(Duration::from_hours(1));
    let asked = child.connection.request("tools/call", Some(params), hour);
    let ended = asked.await;
    assert!(
        matches!(ended, Err(CallError::Ended(Ended::InputClosed { .. }))),
        "{ended:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_server_that_was_too_slow_to_say_its_era_is_asked_again_later() {
    let house = House::new();
    let slow = Habits {
        is_modern: true,
        // The main process, and the first for modern clients.
        ignores_discover: 2,
        ..Habits::default()
    };
    let runs = slow.runs.clone();
    house.knows("slow", slow);
    let slow = house.add(json!({"name": "slow", "command": "slow"})).await;
    let server = house.hosting.server(&slow).await.expect("a server");
    for _ in 0..3 {
        assert!(server.modern().await.expect("asked").is_none());
    }
    assert_eq!(runs.load(std::sync::atomic::Ordering::Relaxed), 2);
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert!(server.modern().await.expect("asked").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_says_its_era_is_of_the_old_one_in_the_end() {
    let house = House::new();
    let silent = Habits {
        is_modern: true,
        ignores_discover: usize::MAX,
        ..Habits::default()
    };
    let runs = silent.runs.clone();
    house.knows("silent", silent);
    let silent = house
        .add(json!({"name": "silent", "command": "silent"}))
        .await;
    let server = house.hosting.server(&silent).await.expect("a server");
    for _ in 0..10 {
        assert!(server.modern().await.expect("asked").is_none());
        tokio::time::sleep(Duration::from_mins(10)).await;
    }
    assert_eq!(runs.load(std::sync::atomic::Ordering::Relaxed), 4);
}

#[tokio::test(start_paused = true)]
async fn a_modern_process_that_cannot_be_attached_to_leaves_the_main_one_to_its_clients() {
    let house = House::new();
    let time = house.well("time").await;
    let server = house.hosting.server(&time).await.expect("a server");
    house
        .runtime
        .attach_fails
        .store(1, std::sync::atomic::Ordering::Relaxed);
    assert!(server.modern().await.expect("no error").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_server_of_the_old_era_is_asked_once() {
    let house = House::new();
    let old = Habits::default();
    let runs = old.runs.clone();
    house.knows("old", old);
    let old = house.add(json!({"name": "old", "command": "old"})).await;
    let server = house.hosting.server(&old).await.expect("a server");
    for _ in 0..3 {
        assert!(server.modern().await.expect("asked").is_none());
    }
    assert_eq!(runs.load(std::sync::atomic::Ordering::Relaxed), 2);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(house.runtime.running("mcp-old"), ["main"]);
}
