use std::time::Duration;

use super::{Fixture, Peer, fixture, logged, process_exit, raw};
use crate::wire::{
    CallError, CallOptions, CloseReason, Connection, InboundEvent, InboundFilter, WireLimits,
};

async fn still_works(connection: &Connection, peer: &mut Peer) {
    let calling = connection.clone();
    let call =
        tokio::spawn(async move { calling.request("m", None, CallOptions::default()).await });
    let received = peer.receive().await;
    peer.respond(&received, "{}").await;
    assert!(call.await.unwrap().is_ok());
}

#[tokio::test]
async fn a_few_invalid_lines_are_logged_and_skipped() {
    let Fixture {
        connection,
        mut peer,
        log,
    } = fixture(WireLimits::default());
    for _ in 0..3 {
        for _ in 0..99 {
            peer.write_line("Server listening on stdio\u{1b}[0m").await;
        }
        still_works(&connection, &mut peer).await;
    }
    peer.write(b"\0\0\0\n\xff\xfe\n[]\n{\"level\":\"info\"}\n")
        .await;
    still_works(&connection, &mut peer).await;
    assert!(logged(&log, r"Server listening on stdio\u{1b}[0m"));
    assert!(logged(
        &log,
        "`jsonrpc` must be \"2.0\" (16 B): {\"level\":\"info\"}"
    ));
    assert!(!connection.is_ended());
}

#[tokio::test]
async fn many_invalid_lines_close_the_connection() {
    let Fixture {
        connection,
        mut peer,
        ..
    } = fixture(WireLimits::default());
    let calling = connection.clone();
    let call =
        tokio::spawn(async move { calling.request("m", None, CallOptions::default()).await });
    peer.receive().await;
    for _ in 0..100 {
        peer.write_line("nonsense").await;
    }
    let ended = CloseReason::Garbage { lines: 100 };
    assert_eq!(connection.ended().await, ended);
    assert_eq!(call.await.unwrap().unwrap_err(), CallError::Closed(ended));
}

#[tokio::test]
async fn a_line_of_a_hundred_megabytes_closes_the_connection_in_bounded_memory() {
    let Fixture {
        connection,
        mut peer,
        ..
    } = fixture(WireLimits::default());
    let limit = WireLimits::default().line;
    let flood = tokio::spawn(async move {
        let chunk = vec![b'x'; 1 << 20];
        let output = peer.output.as_mut().unwrap();
        for _ in 0..100 {
            if tokio::io::AsyncWriteExt::write_all(output, &chunk)
                .await
                .is_err()
            {
                break;
            }
        }
    });
    assert_eq!(connection.ended().await, CloseReason::TooLong { limit });
    flood.await.unwrap();
}

#[tokio::test]
async fn a_response_that_is_too_long_fails_only_its_call() {
    let limits = WireLimits {
        line: 100_000,
        ..WireLimits::default()
    };
    let Fixture {
        connection,
        mut peer,
        ..
    } = fixture(limits);
    let long = "x".repeat(150_000);
    for id_first in [true, false] {
        let (one, two) = (connection.clone(), connection.clone());
        let one =
            tokio::spawn(async move { one.request("one", None, CallOptions::default()).await });
        let received = peer.receive().await;
        let two =
            tokio::spawn(async move { two.request("two", None, CallOptions::default()).await });
        let other = peer.receive().await;
        let id = &received["id"];
        peer.write_line(&if id_first {
            format!(r#"{{"jsonrpc":"2.0","id":{id},"result":"{long}"}}"#)
        } else {
            format!(r#"{{"result":"{long}","jsonrpc":"2.0","id":{id}}}"#)
        })
        .await;
        let failed = one.await.unwrap().unwrap_err();
        assert_eq!(failed, CallError::AnswerTooLong { limit: 100_000 });
        peer.respond(&other, "{}").await;
        assert!(two.await.unwrap().is_ok());
    }
    peer.write_line(&format!(
        r#"{{"jsonrpc":"2.0","method":"n","params":["{long}"]}}"#
    ))
    .await;
    let ended = CloseReason::TooLong { limit: 100_000 };
    assert_eq!(connection.ended().await, ended);
}

#[tokio::test]
async fn a_response_that_is_too_long_may_come_after_its_call_has_ended() {
    let limits = WireLimits {
        line: 100_000,
        ..WireLimits::default()
    };
    let Fixture {
        connection,
        mut peer,
        ..
    } = fixture(limits);
    let calling = connection.clone();
    let call =
        tokio::spawn(async move { calling.request("m", None, CallOptions::default()).await });
    let received = peer.receive().await;
    call.abort();
    let cancelled = peer.receive().await;
    assert_eq!(cancelled["params"]["requestId"], received["id"]);
    let long = "x".repeat(150_000);
    peer.respond(&received, &format!("\"{long}\"")).await;
    still_works(&connection, &mut peer).await;
}

#[tokio::test]
async fn an_endless_line_closes_the_connection() {
    let limits = WireLimits {
        line: 10_000,
        ..WireLimits::default()
    };
    let Fixture {
        connection,
        mut peer,
        ..
    } = fixture(limits);
    let flood = tokio::spawn(async move {
        peer.write(b"{\"result\":\"").await;
        let output = peer.output.as_mut().unwrap();
        let chunk = [b'x'; 1000];
        while tokio::io::AsyncWriteExt::write_all(output, &chunk)
            .await
            .is_ok()
        {}
    });
    assert_eq!(
        connection.ended().await,
        CloseReason::TooLong { limit: 10_000 }
    );
    drop(connection);
    flood.await.unwrap();
}

#[tokio::test]
async fn responses_with_wrong_or_repeated_ids_are_ignored() {
    let Fixture {
        connection,
        mut peer,
        log,
    } = fixture(WireLimits::default());
    let calling = connection.clone();
    let call =
        tokio::spawn(async move { calling.request("m", None, CallOptions::default()).await });
    let received = peer.receive().await;
    let id = received["id"].as_u64().unwrap();
    for wrong in [
        (id + 1).to_string(),
        "0".to_owned(),
        "-1".to_owned(),
        "1e999".to_owned(),
        "\"abc\"".to_owned(),
        format!("{id}.5"),
    ] {
        peer.write_line(&format!(
            r#"{{"jsonrpc":"2.0","id":{wrong},"result":"wrong"}}"#
        ))
        .await;
    }
    peer.write_line(r#"{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"lost"}}"#)
        .await;
    peer.respond(&received, "\"right\"").await;
    peer.respond(&received, "\"again\"").await;
    let answer = call.await.unwrap().unwrap();
    assert_eq!(answer.outcome().unwrap().get(), "\"right\"");
    still_works(&connection, &mut peer).await;
    let unmatched = log.lines();
    let unmatched = unmatched
        .iter()
        .filter(|line| line.contains("response to unknown request"));
    assert_eq!(unmatched.count(), 8);
}

#[tokio::test]
async fn invalid_utf8_in_a_response_is_replaced() {
    let Fixture {
        connection,
        mut peer,
        log,
    } = fixture(WireLimits::default());
    let calling = connection.clone();
    let call =
        tokio::spawn(async move { calling.request("m", None, CallOptions::default()).await });
    let id = peer.receive().await["id"].clone();
    let mut line =
        format!("\u{feff}{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":\"caf").into_bytes();
    line.extend(b"\xe9\"}\r\n");
    peer.write(&line).await;
    let answer = call.await.unwrap().unwrap();
    assert_eq!(answer.outcome().unwrap().get(), "\"caf\u{fffd}\"");
    assert!(logged(&log, "invalid UTF-8"));
}

#[tokio::test]
async fn a_server_that_exits_is_read_to_its_end() {
    let Fixture {
        connection,
        mut peer,
        ..
    } = fixture(WireLimits::default());
    let (one, two) = (connection.clone(), connection.clone());
    let one = tokio::spawn(async move { one.request("one", None, CallOptions::default()).await });
    let received = peer.receive().await;
    let two = tokio::spawn(async move { two.request("two", None, CallOptions::default()).await });
    peer.receive().await;
    peer.exit(137);
    peer.respond(&received, "{}").await;
    drop(peer);
    assert!(one.await.unwrap().is_ok());
    let ended = CloseReason::Exited(process_exit(137));
    assert_eq!(
        two.await.unwrap().unwrap_err(),
        CallError::Closed(ended.clone())
    );
    assert_eq!(connection.ended().await, ended);
}

#[tokio::test(start_paused = true)]
async fn a_child_that_keeps_the_output_open_delays_the_end_briefly() {
    let Fixture {
        connection, peer, ..
    } = fixture(WireLimits::default());
    let began = tokio::time::Instant::now();
    peer.exit(0);
    assert_eq!(
        connection.ended().await,
        CloseReason::Exited(process_exit(0))
    );
    assert!(began.elapsed() < Duration::from_secs(5));
    drop(peer);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_closes_only_its_output_is_noticed() {
    let Fixture {
        connection,
        mut peer,
        ..
    } = fixture(WireLimits::default());
    peer.output = None;
    assert_eq!(connection.ended().await, CloseReason::OutputClosed);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_closes_only_its_input_is_noticed_at_the_next_write() {
    let Fixture {
        connection,
        mut peer,
        ..
    } = fixture(WireLimits::default());
    peer.input = None;
    let failed = connection.request("m", None, CallOptions::default()).await;
    assert!(matches!(
        failed,
        Err(CallError::Closed(CloseReason::InputClosed { .. }))
    ));
    let ended = connection.ended().await;
    assert!(ended.to_string().starts_with("the server closed its input"));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_reads_nothing_uses_bounded_memory_and_time() {
    let limits = WireLimits {
        line: 100_000,
        ..WireLimits::default()
    };
    let Fixture {
        connection,
        mut peer,
        ..
    } = fixture(limits);
    let params = format!(r#"{{"a":"{}"}}"#, "x".repeat(60_000));
    let calls = (0..20).map(|_| {
        let patience = CallOptions::with_timeout(Duration::from_secs(10));
        connection.request("m", Some(raw(&params)), patience)
    });
    for answer in futures_util::future::join_all(calls).await {
        assert!(matches!(answer, Err(CallError::TimedOut { .. })));
    }
    // A few lines were written before the calls were cancelled; the others were never written.
    let mut read = 0;
    let patience = Duration::from_mins(1);
    while let Ok(Some(received)) = tokio::time::timeout(patience, peer.line()).await {
        read += usize::from(received["method"] == "m");
    }
    assert!(read <= 4, "{read}");
    assert!(!connection.is_ended());
}

#[tokio::test]
async fn large_messages_in_both_directions_do_not_deadlock() {
    let Fixture {
        connection,
        mut peer,
        ..
    } = fixture(WireLimits::default());
    let mut listener = connection.inbound(InboundFilter::Notifications);
    let mut input = peer.input.take().unwrap();
    let mut output = peer.output.take().unwrap();
    // Writes two megabytes before it reads, and its responses are as long as the requests.
    let server = tokio::spawn(async move {
        use tokio::io::{AsyncBufReadExt, AsyncWriteExt};
        let long = "n".repeat(20_000);
        let note = format!("{{\"jsonrpc\":\"2.0\",\"method\":\"n\",\"params\":[\"{long}\"]}}\n");
        for _ in 0..100 {
            output.write_all(note.as_bytes()).await.unwrap();
        }
        for _ in 0..100 {
            let mut line = String::new();
            input.read_line(&mut line).await.unwrap();
            let received: serde_json::Value = serde_json::from_str(&line).unwrap();
            let (id, echo) = (&received["id"], &received["params"]);
            let answer = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{echo}}}\n");
            output.write_all(answer.as_bytes()).await.unwrap();
        }
        (input, output)
    });
    let params = format!(r#"["{}"]"#, "q".repeat(20_000));
    let calls =
        (0..100).map(|_| connection.request("echo", Some(raw(&params)), CallOptions::default()));
    let calls = futures_util::future::join_all(calls);
    let answers = tokio::time::timeout(Duration::from_mins(1), calls)
        .await
        .unwrap();
    for answer in answers {
        assert_eq!(answer.unwrap().outcome().unwrap().get(), params);
    }
    let _open = server.await.unwrap();
    assert!(matches!(listener.next().await, InboundEvent::Message(_)));
}

#[tokio::test]
async fn the_log_is_bounded_and_contains_no_arguments() {
    let Fixture {
        connection,
        mut peer,
        log,
    } = fixture(WireLimits::default());
    let params = Some(raw(r#"{"password":"hunter2"}"#));
    let calling = connection.clone();
    let call = tokio::spawn(async move {
        calling
            .request("tools/call", params, CallOptions::default())
            .await
    });
    let received = peer.receive().await;
    peer.respond(&received, r#"{"secret":"hunter3"}"#).await;
    call.await.unwrap().unwrap();
    let lines = log.lines().join("\n");
    assert!(lines.contains("> tools/call") && lines.contains("< tools/call"));
    assert!(!lines.contains("hunter"));
    for at in 0..600 {
        let long = "m".repeat(900);
        peer.write_line(&format!(r#"{{"jsonrpc":"2.0","method":"{long}{at}"}}"#))
            .await;
    }
    still_works(&connection, &mut peer).await;
    assert_eq!(log.lines().len(), 500);
    assert!(log.lines().iter().all(|line| line.len() < 200));
}
