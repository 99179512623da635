//! Where the questions of all servers go out to one client, and its answers come back.
//!
//! Comes in: questions under the servers' own ids, which may be alike. Goes out: the same under ids that no
//! two of them share, and each answer to whoever asked. What nobody waits for any more is taken back.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::value::RawValue;
use tokio::sync::mpsc;

use super::company::Voice;
use super::json::raw;
use super::questions::{NOT_ANSWERED, withdrawn};
use super::refusal::INTERNAL_ERROR;
use crate::wire::Message;

const QUEUE: usize = 64;
/// Questions of all servers together.
const MOST_OPEN: usize = 256;
/// Of one server: a client has room for those of several.
const MOST_OF_ONE: usize = 16;

pub(crate) struct Desk {
    client: mpsc::Sender<Message>,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    last: u64,
    /// Who asked, and under which id.
    waiting: HashMap<Box<str>, (Voice, Box<RawValue>)>,
}

impl Desk {
    /// What comes second is for the client.
    pub(crate) fn new() -> (Self, mpsc::Receiver<Message>) {
        let (client, said) = mpsc::channel(QUEUE);
        let desk = Self {
            client,
            open: Mutex::default(),
        };
        (desk, said)
    }

    /// The id that the client knows it by, when it was asked.
    pub(crate) async fn ask(&self, voice: &Voice, question: &Message) -> Option<Box<RawValue>> {
        let theirs = question.id()?.to_owned();
        let ours = self.number(voice, &theirs);
        if let Some(ours) = ours {
            let question = question.clone().with_id(ours.clone());
            if self.client.send(question).await.is_ok() {
                return Some(ours);
            }
            self.take(&ours);
        }
        refuse(voice, theirs, "the client cannot be asked now").await;
        None
    }

    fn number(&self, voice: &Voice, theirs: &RawValue) -> Option<Box<RawValue>> {
        let mut open = self.open();
        let of_one = open.waiting.values().filter(|(by, _)| is_same(by, voice));
        if open.waiting.len() >= MOST_OPEN || of_one.count() >= MOST_OF_ONE {
            return None;
        }
        open.last += 1;
        let ours = raw(&format!("boxwood-all-{}", open.last));
        let waiting = (voice.clone(), theirs.to_owned());
        open.waiting.insert(ours.get().into(), waiting);
        Some(ours)
    }

    pub(crate) fn is_open(&self, ours: &RawValue) -> bool {
        self.open().waiting.contains_key(ours.get())
    }

    /// What the client answered.
    pub(crate) async fn respond(&self, answer: Message) {
        let ours = answer.id().map(ToOwned::to_owned).unwrap_or_default();
        if let Some((voice, theirs)) = self.take(&ours) {
            pass(&voice, answer.with_id(theirs)).await;
        }
    }

    /// The same without waiting for the server.
    pub(crate) fn respond_now(&self, answer: Message) {
        let ours = answer.id().map(ToOwned::to_owned).unwrap_or_default();
        match self.take(&ours) {
            Some((Voice::Own(connection), theirs)) => {
                connection.respond_now(&answer.with_id(theirs));
            }
            Some((Voice::Bridged(bridge), theirs)) => bridge.respond(&answer.with_id(theirs)),
            None => {}
        }
    }

    /// The client has had its time.
    pub(crate) async fn give_up(&self, ours: &RawValue) {
        if let Some((voice, theirs)) = self.take(ours) {
            self.say(withdrawn(ours)).await;
            refuse(&voice, theirs, NOT_ANSWERED).await;
        }
    }

    /// The server does not wait for it any more.
    pub(crate) async fn withdraw(&self, voice: &Voice, theirs: &RawValue) {
        let found = {
            let open = self.open();
            let mut all = open.waiting.iter();
            let found = all.find(|(_, (by, id))| id.get() == theirs.get() && is_same(by, voice));
            found.map(|(ours, _)| ours.clone())
        };
        if let Some(ours) = found.and_then(|ours| RawValue::from_string(ours.into()).ok())
            && self.take(&ours).is_some()
        {
            self.say(withdrawn(&ours)).await;
        }
    }

    /// Its process is gone, and nothing of it waits any more.
    pub(crate) fn forget(&self, gone: &Voice) {
        let mut open = Vec::new();
        self.open().waiting.retain(|ours, (voice, theirs)| {
            let is_gone = is_same(voice, gone);
            if is_gone {
                open.push((ours.clone(), theirs.clone()));
            }
            !is_gone
        });
        for (ours, theirs) in open {
            if let Ok(ours) = RawValue::from_string(ours.into()) {
                self.tell(withdrawn(&ours));
            }
            if let Voice::Bridged(bridge) = gone {
                let text = "the server it was asked for has ended";
                bridge.respond(&Message::failure(Some(theirs), INTERNAL_ERROR, text, None));
            }
        }
    }

    /// News. A client that does not read loses some.
    pub(crate) fn tell(&self, news: Message) {
        let _ = self.client.try_send(news);
    }

    async fn say(&self, message: Message) {
        // A client that is gone needs to know nothing.
        let _ = self.client.send(message).await;
    }

    fn take(&self, ours: &RawValue) -> Option<(Voice, Box<RawValue>)> {
        self.open().waiting.remove(ours.get())
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_same(one: &Voice, other: &Voice) -> bool {
    match (one, other) {
        (Voice::Own(one), Voice::Own(other)) => one.id() == other.id(),
        (Voice::Bridged(one), Voice::Bridged(other)) => std::sync::Arc::ptr_eq(one, other),
        _ => false,
    }
}

async fn refuse(voice: &Voice, theirs: Box<RawValue>, text: &str) {
    pass(
        voice,
        Message::failure(Some(theirs), INTERNAL_ERROR, text, None),
    )
    .await;
}

async fn pass(voice: &Voice, answer: Message) {
    match voice {
        // A server that is gone needs no answer.
        Voice::Own(connection) => drop(connection.respond(answer).await),
        Voice::Bridged(bridge) => bridge.respond(&answer),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::gateway::bridge::Bridge;

    fn question(id: &str) -> Message {
        Message::request(raw(id), "elicitation/create", None)
    }

    #[tokio::test]
    async fn a_server_that_asks_much_leaves_room_for_others() {
        let (desk, mut asked) = Desk::new();
        let bridge = || Voice::Bridged(Arc::new(Bridge::new(&raw(&json!({}))).0));
        let (one, other) = (bridge(), bridge());
        for number in 0..2 * MOST_OF_ONE {
            let ours = desk.ask(&one, &question(&number.to_string())).await;
            assert_eq!(ours.is_some(), number < MOST_OF_ONE);
        }
        assert!(desk.ask(&other, &question("0")).await.is_some());
        let first = asked.recv().await.expect("a question");
        let answer = Message::result(first.id().expect("an id").to_owned(), raw(&json!({})));
        desk.respond(answer).await;
        assert!(desk.ask(&one, &question("again")).await.is_some());
    }
}
