//! Servers of the stateless era, asked by clients of the era with sessions.

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::{Knows, Village};
use crate::gateway::Target;
use crate::gateway::behind::House;
use crate::gateway::bridged::Bridged;
use crate::gateway::budget::Budget;
use crate::gateway::json::raw;
use crate::gateway::questions::MOST;
use crate::gateway::session::{Session, Way};
use crate::gateway::upstream::Upstream;
use crate::gateway::village::{named, pipe};
use crate::wire::{Ask, Connection, Heard, Hears, Message, ProtocolLog, WireLimits};

fn value(message: &Message) -> Value {
    let result = message.outcome().map_or("null", RawValue::get);
    serde_json::from_str(result).expect("JSON")
}

fn call(name: &str) -> Message {
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "vendor": [1],
        "params": {"name": name, "arguments": {"a": 1}}});
    Message::parse(call.to_string().as_bytes()).expect("a request")
}

#[tokio::test]
async fn a_client_with_a_session_can_use_a_stateless_server() {
    let village = Village::with(&[("new", Knows::Stateless)]);
    let one = Upstream::find(&village.all(), &Target::One(named("new")))
        .await
        .expect("a server");
    let greeting: Value = serde_json::from_str(one.greeting().get()).expect("JSON");
    assert_eq!(greeting["protocolVersion"], "2025-11-25");
    assert_eq!(greeting["serverInfo"]["name"], "new");
    let echo = one
        .request(call("echo"), Ask::default())
        .await
        .expect("an answer");
    assert_eq!(value(&echo)["said"], json!({"a": 1}));
    let vendors = village.facts("new").heard("main vendor");
    assert_eq!(vendors, ["main vendor [1]"], "what nobody here knows");
    assert!(
        one.request(Message::request(raw(&1), "ping", None), Ask::default())
            .await
            .is_ok()
    );
    assert!(one.request(call("secret"), Ask::default()).await.is_err());
    let asking = one.request(call("ask"), Ask::default()).await;
    assert!(asking.is_err(), "this client has offered nothing");
}

#[tokio::test]
async fn what_a_stateless_server_needs_to_know_is_asked_of_the_client() {
    let village = Village::with(&[("new", Knows::Stateless)]);
    let house: Arc<dyn House> = Arc::<Village>::clone(&village);
    let behind = house.server(&named("new")).await.expect("a server");
    let initialize = raw(
        &json!({"capabilities": {"elicitation": {}}, "clientInfo": {"name": "t", "version": "0"}}),
    );
    let (one, mut asked) = Upstream::bridged(&house, behind.as_ref(), &initialize);
    let answering = one.clone();
    let client = tokio::spawn(async move {
        let question = asked.recv().await.expect("a question");
        assert_eq!(question.method(), Some("elicitation/create"));
        let id = question.id().expect("an id").to_owned();
        let answer = Message::result(id, raw(&json!({"action": "decline"})));
        answering.respond(answer).await.expect("somebody waits");
    });
    let done = one
        .request(call("ask"), Ask::default())
        .await
        .expect("an answer");
    assert_eq!(value(&done)["answers"], json!({"q": {"action": "decline"}}));
    assert_eq!(value(&done)["state"], "sealed");
    let vendors = village.facts("new").heard("main vendor");
    assert_eq!(vendors.len(), 2, "in every round: {vendors:?}");
    client.await.expect("the client is content");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_never_answers_is_not_waited_for_and_is_told_so() {
    let village = Village::with(&[("new", Knows::Stateless)]);
    let house: Arc<dyn House> = Arc::<Village>::clone(&village);
    let behind = house.server(&named("new")).await.expect("a server");
    let initialize = raw(&json!({"capabilities": {"elicitation": {}}}));
    let (one, mut asked) = Upstream::bridged(&house, behind.as_ref(), &initialize);
    let withdrawn = async |asked: &mut mpsc::Receiver<Message>| {
        let question = asked.recv().await.expect("a question");
        let id = question.id().expect("an id").get().to_owned();
        let taken_back = asked.recv().await.expect("a word more");
        assert_eq!(taken_back.method(), Some("notifications/cancelled"));
        let params = taken_back.params().map_or("", RawValue::get);
        assert!(params.contains(&id), "{params}");
    };
    let began = tokio::time::Instant::now();
    let asking = call("ask");
    let (answer, ()) = tokio::join!(
        one.request(asking.clone(), Ask::default()),
        withdrawn(&mut asked)
    );
    assert!(answer.is_err());
    assert_eq!(began.elapsed().as_secs(), 600);
    let late = one.request(asking, Ask::within(Duration::from_mins(1)));
    let (answer, ()) = tokio::join!(late, withdrawn(&mut asked));
    assert!(answer.is_err(), "the whole call has its time too");
    assert_eq!(began.elapsed().as_secs(), 660);
}

#[tokio::test]
async fn a_server_that_was_started_anew_is_asked_on() {
    let village = Village::with(&[("new", Knows::Stateless)]);
    let house: Arc<dyn House> = Arc::<Village>::clone(&village);
    let behind = house.server(&named("new")).await.expect("a server");
    let initialize = raw(&json!({"capabilities": {"roots": {}}}));
    let (one, _asked) = Upstream::bridged(&house, behind.as_ref(), &initialize);
    drop(behind);
    for _ in 0..2 {
        let echo = one.request(call("echo"), Ask::default()).await;
        assert_eq!(value(&echo.expect("an answer"))["said"], json!({"a": 1}));
        village.end("new", false);
    }
    assert!(one.request(call("secret"), Ask::default()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_read_holds_nobody_up_with_its_questions() {
    let village = Village::with(&[("stuck", Knows::Sessions)]);
    let behind = village.server(&named("stuck")).await.expect("a server");
    let (pipe, ends) = pipe();
    let limits = WireLimits {
        line: 1024,
        ..WireLimits::default()
    };
    let stuck = Connection::open(Box::new(pipe), limits, Arc::<ProtocolLog>::default());
    let mut inbound = stuck.inbound(Hears::Everything);
    let line = "{\"jsonrpc\":\"2.0\",\"id\":\"q\",\"method\":\"elicitation/create\"}\n";
    ends.output.send(line.into()).await.expect("it is read");
    let Heard::Message(question) = inbound.next().await else {
        panic!("it asked nothing");
    };
    let news = Message::notification("notifications/message", None);
    while stuck.notify(news.clone()).await.is_ok() {}

    let budget = Budget::new(1 << 20);
    let session = Session::new("s".into(), Target::All, None, Way::Streamable, &budget);
    let session = Arc::new(session);
    for number in 0..MOST {
        assert!(session.questions.ask(&raw(&number)));
    }
    let greeting = behind.greeting();
    let upstream = Upstream::alone(behind, stuck, greeting);
    let (asks, asked) = mpsc::channel(8);
    let _bridged = Bridged::over(&session, upstream, asked);
    asks.send(Message::clone(&question)).await.expect("it asks");
    asks.send(news).await.expect("another has news");
    let mut told = session.general().reader(None);
    let told = timeout(Duration::from_secs(1), told.next()).await;
    assert!(told.expect("nobody waits").is_some());
    drop(ends);
}
