use std::time::Duration;

use serde_json::json;
use tokio::sync::mpsc;

use super::{Fixture, fixture, logged, raw};
use crate::wire::message::object::BadObject;
use crate::wire::{BodyPermit, CallError, CallOptions, CloseReason, Message, WireLimits};

const SOON: Duration = Duration::from_millis(50);

fn request(id: &str, params: &str) -> Message {
    Message::request(raw(id), "tools/call", Some(raw(params)))
}

#[tokio::test]
async fn clients_with_the_same_id_get_their_own_answers() {
    let Fixture {
        connection,
        mut peer,
        ..
    } = fixture(WireLimits::default());
    let (first, second) = (connection.clone(), connection);
    let first = tokio::spawn(async move {
        let message = request("1", r#"{"who":"first"}"#);
        first.relay(message, CallOptions::default()).await
    });
    let one = peer.receive().await;
    let second = tokio::spawn(async move {
        let message = request("1", r#"{"who":"second"}"#);
        second.relay(message, CallOptions::default()).await
    });
    let two = peer.receive().await;
    assert_ne!(one["id"], two["id"]);
    peer.respond(&two, r#"{"for":"second","n":1.00}"#).await;
    peer.respond(&one, r#"{"for":"first","n":2.00}"#).await;
    let first = first.await.unwrap().unwrap();
    let second = second.await.unwrap().unwrap();
    assert_eq!(
        first.outcome().unwrap().get(),
        r#"{"for":"first","n":2.00}"#
    );
    assert_eq!(
        second.outcome().unwrap().get(),
        r#"{"for":"second","n":1.00}"#
    );
    assert_eq!(first.id().unwrap().get(), "1");
}

#[tokio::test]
async fn a_requests_bytes_count_until_the_server_has_them() {
    let Fixture {
        connection,
        mut peer,
        ..
    } = fixture(WireLimits::default());
    let counted = std::sync::Arc::new(());
    let weak = std::sync::Arc::downgrade(&counted);
    let long = format!(r#"{{"x":"{}"}}"#, "y".repeat(4 * super::PIPE));
    let message = request("1", &long).counted(Some(&BodyPermit::new(counted)));
    let call = tokio::spawn(async move { connection.relay(message, CallOptions::default()).await });
    // The request does not fit into the pipe, so the writer waits.
    tokio::time::sleep(SOON).await;
    assert!(weak.upgrade().is_some());
    let received = peer.receive().await;
    while weak.upgrade().is_some() {
        tokio::task::yield_now().await;
    }
    assert!(!call.is_finished(), "the call goes on");
    peer.respond(&received, "{}").await;
    call.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_relayed_request_keeps_unknown_fields() {
    let Fixture {
        connection,
        mut peer,
        ..
    } = fixture(WireLimits::default());
    let text =
        br#"{"trace":[1.0],"jsonrpc":"2.0","id":"x","method":"new/method","params":{"a":1}}"#;
    let message = Message::parse(text).unwrap();
    let call = tokio::spawn(async move { connection.relay(message, CallOptions::default()).await });
    let received = peer.receive().await;
    assert_eq!(received["trace"], json!([1.0]));
    assert_eq!(received["method"], "new/method");
    let id = &received["id"];
    let answer = format!(r#"{{"id":"{id}","jsonrpc":"2.0","later":{{}},"result":{{}}}}"#);
    peer.write_line(&answer).await;
    let answer = call.await.unwrap().unwrap().json();
    let expected = br#"{"id":"x","jsonrpc":"2.0","later":{},"result":{}}"#;
    assert_eq!(&answer[..], expected);
}

#[tokio::test]
async fn progress_reaches_its_caller_with_its_own_token() {
    let Fixture {
        connection,
        mut peer,
        log,
    } = fixture(WireLimits::default());
    let mut calls = Vec::new();
    for _ in 0..2 {
        let (progress, events) = mpsc::channel(8);
        let how = CallOptions {
            progress: Some(progress),
            ..CallOptions::default()
        };
        // Both clients chose the same token.
        let message = request(
            "1",
            r#"{"_meta":{"z":1,"progressToken":"t","a":2},"name":"n"}"#,
        );
        let connection = connection.clone();
        let call = tokio::spawn(async move { connection.relay(message, how).await });
        calls.push((peer.receive().await, events, call));
    }
    let (other, mut others, _) = calls.pop().unwrap();
    let (received, mut events, call) = calls.pop().unwrap();
    assert_ne!(
        received["params"]["_meta"]["progressToken"],
        other["params"]["_meta"]["progressToken"]
    );
    let token = &received["params"]["_meta"]["progressToken"];
    let progress = format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progress":0.50,"progressToken":{token},"new":{{}}}}}}"#
    );
    peer.write_line(&progress).await;
    peer.write_line(r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t","progress":1}}"#).await;
    peer.respond(&received, "{}").await;
    call.await.unwrap().unwrap();
    let event = events.recv().await.unwrap();
    let params = event.params().unwrap().get();
    assert_eq!(params, r#"{"progress":0.50,"progressToken":"t","new":{}}"#);
    assert!(events.recv().await.is_none());
    assert!(others.try_recv().is_err());
    assert!(logged(&log, "progress for an unknown request"));
}

#[tokio::test]
async fn events_of_a_subscription_have_the_callers_id() {
    let Fixture {
        connection,
        mut peer,
        ..
    } = fixture(WireLimits::default());
    let (progress, mut events) = mpsc::channel(8);
    let how = CallOptions {
        progress: Some(progress),
        ..CallOptions::default()
    };
    let listen = Message::request(raw(r#""sub""#), "subscriptions/listen", Some(raw("{}")));
    let call = tokio::spawn(async move { connection.relay(listen, how).await });
    let received = peer.receive().await;
    let id = &received["id"];
    let key = "io.modelcontextprotocol/subscriptionId";
    peer.write_line(&format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{{"_meta":{{"{key}":{id}}}}}}}"#
    ))
    .await;
    let event = events.recv().await.unwrap();
    assert_eq!(event.meta().unwrap().text(key).as_deref(), Some("sub"));
    peer.respond(&received, &format!(r#"{{"_meta":{{"{key}":{id},"b":1}}}}"#))
        .await;
    let answer = call.await.unwrap().unwrap();
    let expected = format!(r#"{{"_meta":{{"{key}":"sub","b":1}}}}"#);
    assert_eq!(answer.outcome().unwrap().get(), expected);
}

#[tokio::test]
async fn a_dropped_call_is_cancelled() {
    let Fixture {
        connection,
        mut peer,
        log,
    } = fixture(WireLimits::default());
    let calling = connection.clone();
    let call =
        tokio::spawn(async move { calling.request("slow", None, CallOptions::default()).await });
    let received = peer.receive().await;
    call.abort();
    let cancelled = peer.receive().await;
    assert_eq!(cancelled["method"], "notifications/cancelled");
    assert_eq!(cancelled["params"]["requestId"], received["id"]);
    // The server responds to the cancelled call, twice.
    peer.respond(&received, "{}").await;
    peer.respond(&received, "{}").await;
    let next = connection.clone();
    let next =
        tokio::spawn(async move { next.request("next", None, CallOptions::default()).await });
    let received = peer.receive().await;
    peer.respond(&received, "{}").await;
    assert!(next.await.unwrap().is_ok());
    let unmatched = log.lines();
    let unmatched = unmatched
        .iter()
        .filter(|line| line.contains("response to unknown request"));
    assert_eq!(unmatched.count(), 2);
}

#[tokio::test]
async fn a_client_cannot_cancel_anothers_call_by_its_id() {
    let Fixture {
        connection,
        mut peer,
        ..
    } = fixture(WireLimits::default());
    let calling = connection.clone();
    let call =
        tokio::spawn(async move { calling.request("m", None, CallOptions::default()).await });
    let received = peer.receive().await;
    let guessed = raw(&json!({"requestId": received["id"]}).to_string());
    let cancel = Message::notification("notifications/cancelled", Some(guessed));
    connection.notify(cancel).await.unwrap();
    let other = Message::notification("notifications/roots/list_changed", None);
    connection.notify(other).await.unwrap();
    let next = peer.receive().await;
    assert_eq!(next["method"], "notifications/roots/list_changed");
    peer.respond(&received, "{}").await;
    assert!(call.await.unwrap().is_ok());
}

#[tokio::test]
async fn a_late_call_ends_and_is_cancelled_but_never_initialize() {
    let Fixture {
        connection,
        mut peer,
        ..
    } = fixture(WireLimits::default());
    let late = connection
        .request("initialize", None, CallOptions::with_timeout(SOON))
        .await;
    assert!(matches!(late, Err(CallError::TimedOut { .. })));
    let late = connection
        .request("tools/list", None, CallOptions::with_timeout(SOON))
        .await;
    let expected = CallError::TimedOut {
        method: "tools/list".to_owned(),
        after: SOON,
    };
    assert_eq!(late.unwrap_err(), expected);
    let received = [
        peer.receive().await,
        peer.receive().await,
        peer.receive().await,
    ];
    let methods = received
        .each_ref()
        .map(|one| one["method"].as_str().unwrap());
    let expected = ["initialize", "tools/list", "notifications/cancelled"];
    assert_eq!(methods, expected);
    assert_eq!(received[2]["params"]["requestId"], received[1]["id"]);
}

#[tokio::test]
async fn more_calls_than_allowed_are_refused() {
    let limits = WireLimits {
        pending: 2,
        ..WireLimits::default()
    };
    let Fixture {
        connection,
        mut peer,
        ..
    } = fixture(limits);
    let mut calls = Vec::new();
    for _ in 0..2 {
        let connection = connection.clone();
        calls.push(tokio::spawn(async move {
            connection.request("m", None, CallOptions::default()).await
        }));
        peer.receive().await;
    }
    let refused = connection.request("m", None, CallOptions::default()).await;
    assert_eq!(refused.unwrap_err(), CallError::Busy { most: 2 });
    calls.pop().unwrap().abort();
    peer.receive().await;
    let again = connection
        .request("m", None, CallOptions::with_timeout(SOON))
        .await;
    assert!(matches!(again, Err(CallError::TimedOut { .. })));
}

#[tokio::test]
async fn a_message_that_is_too_large_is_not_sent() {
    let limits = WireLimits {
        line: 1000,
        ..WireLimits::default()
    };
    let Fixture { connection, .. } = fixture(limits);
    let params = format!(r#"{{"a":"{}"}}"#, "x".repeat(1000));
    let refused = connection
        .request("m", Some(raw(&params)), CallOptions::default())
        .await;
    assert!(matches!(
        refused,
        Err(CallError::TooLarge { limit: 1000, .. })
    ));
}

#[tokio::test]
async fn params_with_duplicate_keys_are_refused() {
    let Fixture { connection, .. } = fixture(WireLimits::default());
    let twice = r#"{"_meta":{"progressToken":1},"_meta":{}}"#;
    for (params, key) in [
        (twice, "_meta"),
        (r#"{"name":"a","name":"b"}"#, "name"),
        (
            r#"{"_meta":{"progressToken":1,"progressToken":2}}"#,
            "progressToken",
        ),
    ] {
        let refused = connection
            .request("m", Some(raw(params)), CallOptions::default())
            .await;
        let expected = CallError::BadParams(BadObject::DuplicateKey(key.to_owned()));
        assert_eq!(refused.unwrap_err(), expected);
    }
}

#[tokio::test]
async fn internal_calls_do_not_count_as_use() {
    let Fixture {
        connection,
        mut peer,
        ..
    } = fixture(WireLimits::default());
    let calling = connection.clone();
    let within = Duration::from_secs(30);
    let ours = tokio::spawn(async move {
        calling
            .request("ping", None, CallOptions::internal(within))
            .await
    });
    let received = peer.receive().await;
    assert!(!connection.is_busy());
    peer.respond(&received, "{}").await;
    ours.await.unwrap().unwrap();
    let calling = connection.clone();
    let theirs =
        tokio::spawn(async move { calling.request("m", None, CallOptions::default()).await });
    let received = peer.receive().await;
    assert!(connection.is_busy());
    assert_eq!(connection.idle_for(), Duration::ZERO);
    peer.respond(&received, "{}").await;
    theirs.await.unwrap().unwrap();
    assert!(!connection.is_busy());
}

#[tokio::test]
async fn close_fails_all_calls_and_keeps_the_server_running() {
    let Fixture {
        connection,
        mut peer,
        ..
    } = fixture(WireLimits::default());
    let ended = connection.ended();
    let calling = connection.clone();
    let call =
        tokio::spawn(async move { calling.request("m", None, CallOptions::default()).await });
    peer.receive().await;
    connection.close();
    let failed = call.await.unwrap().unwrap_err();
    assert_eq!(failed, CallError::Closed(CloseReason::Detached));
    assert_eq!(ended.await, CloseReason::Detached);
    assert!(connection.is_ended());
    let after = connection.request("m", None, CallOptions::default()).await;
    assert_eq!(after.unwrap_err(), CallError::Closed(CloseReason::Detached));
}

#[tokio::test]
async fn dropping_the_last_clone_closes_the_connection() {
    let Fixture {
        connection,
        mut peer,
        ..
    } = fixture(WireLimits::default());
    let ended = connection.ended();
    drop(connection.clone());
    drop(connection);
    assert_eq!(ended.await, CloseReason::Detached);
    assert!(peer.line().await.is_none());
}
