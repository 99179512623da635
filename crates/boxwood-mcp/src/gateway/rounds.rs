//! A call on a server of the era before that asks its client something on the way.
//!
//! Comes in: a call of the stateless era, a process that is this client's. Goes out: what the server says
//! meanwhile, what it wants to know, its answer. Never here: where a call waits for its client.

use std::collections::BTreeMap;
use std::future::{pending, ready};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::budget::LARGEST_NEWS;
use super::envelope::Asked;
use super::json::{object, raw};
use super::level::Level;
use super::refusal::{INTERNAL_ERROR, METHOD_NOT_FOUND};
use super::seats::{Seat, Seats};
use crate::wire::{Ask, CallError, Greeting, Heard, Kind, Message, Object};

/// A server that asks several things at once asks them in a row.
const GATHERING: Duration = Duration::from_millis(30);
/// A server that wants to know its client's roots asks for them at once.
const SETTLING: Duration = Duration::from_millis(200);
const MOST_QUESTIONS: usize = 64;
const MOST_AT_ONCE: usize = 16;
/// Of all questions that wait for one answer of the client's.
const MOST_ASKED_BYTES: usize = 8 << 20;
/// Until the next round nobody takes them, and they are counted nowhere.
const PROGRESS: usize = 16;
/// A server that talks without a pause is not listened to for longer before the call has its turn. More
/// than can wait to be heard, so that nothing that came before the answer is lost.
const MOST_IN_A_ROW: usize = 512;

/// What a call came to, this time.
pub(crate) enum Step {
    /// For the client, before the answer.
    News(Message),
    /// The server wants to know something.
    Asks,
    Answer(Result<Message, CallError>),
}

/// Dropping it cancels the call; its process is free again after a while.
pub(crate) struct Call {
    answering: BoxFuture<'static, Result<Message, CallError>>,
    /// Here until the call has ended.
    seat: Option<Seat>,
    seats: Seats,
    progress: mpsc::Receiver<Message>,
    /// Of the client's latest request: each round is another one.
    token: Option<Box<RawValue>>,
    level: Option<Level>,
    questions: BTreeMap<String, Question>,
    asked: usize,
    /// Its first questions are heard before the call is made, until then.
    settles_at: Option<Instant>,
    /// Here while there are questions.
    asks_at: Option<Instant>,
    in_a_row: usize,
    /// It came while the server went on talking.
    answer: Option<Result<Message, CallError>>,
}

struct Question {
    /// The server's own.
    id: Box<RawValue>,
    request: Box<RawValue>,
}

impl Call {
    pub(crate) async fn begin(
        seats: &Seats,
        mut seat: Seat,
        asked: &Asked,
        request: Message,
        longest: Duration,
    ) -> Self {
        let was_new = std::mem::take(&mut seat.is_new);
        if !was_new {
            refuse_questions(&mut seat).await;
        }
        set_level(&mut seat, asked.level).await;
        let connection = seat.child.connection.clone();
        let (sender, progress) = mpsc::channel(PROGRESS);
        let how = Ask {
            // All rounds together, with the time the client takes.
            timeout: Some(longest),
            progress: Some(sender),
            caller: Some(asked.id.clone()),
            ..Ask::default()
        };
        let answering = async move { connection.relay(request, how).await };
        Self {
            answering: Box::pin(answering),
            seat: Some(seat),
            seats: seats.clone(),
            progress,
            token: asked.progress_token(),
            level: asked.level,
            questions: BTreeMap::new(),
            asked: 0,
            settles_at: (was_new && asked.capabilities.get("roots").is_some())
                .then(|| Instant::now() + SETTLING),
            asks_at: None,
            in_a_row: 0,
            answer: None,
        }
    }

    pub(crate) async fn step(&mut self) -> Step {
        loop {
            let is_settled = self.settles_at.is_none();
            let is_answered = self.answer.is_some();
            let is_heard = self.in_a_row < MOST_IN_A_ROW;
            let heard = tokio::select! {
                biased;
                // Before anything that is heard: nobody puts them off by talking.
                () = until(self.asks_at), if !is_answered => {
                    (self.asks_at, self.settles_at) = (None, None);
                    return Step::Asks;
                }
                () = until(self.settles_at) => {
                    self.settles_at = None;
                    continue;
                }
                heard = heard(&mut self.seat), if is_heard => heard,
                Some(progress) = self.progress.recv(), if is_heard => {
                    self.in_a_row += 1;
                    match self.in_its_words(progress) {
                        Some(progress) => return Step::News(progress),
                        None => continue,
                    }
                }
                // The request is written when this is looked at for the first time.
                answer = &mut self.answering, if is_settled && !is_answered => {
                    self.in_a_row = 0;
                    self.answer = Some(answer);
                    continue;
                }
                () = ready(()), if !is_heard || is_answered => {
                    if let Some(answer) = self.answer.take() {
                        return Step::Answer(answer);
                    }
                    self.in_a_row = 0;
                    continue;
                }
            };
            self.in_a_row += 1;
            match heard {
                Heard::Message(message) => match message.kind() {
                    Kind::Request => self.question(&message).await,
                    Kind::Notification if self.wants(&message) => {
                        return Step::News(Message::clone(&message));
                    }
                    Kind::Notification | Kind::Response => {}
                },
                Heard::Missed(_) => {}
                Heard::Ended => {
                    return Step::Answer(match self.answer.take() {
                        Some(answer) => answer,
                        // The call hears of it too, and says why.
                        None => (&mut self.answering).await,
                    });
                }
            }
            if self.questions.len() >= MOST_AT_ONCE {
                self.asks_at = None;
                return Step::Asks;
            }
        }
    }

    /// Progress of the call as progress of the latest request.
    fn in_its_words(&self, progress: Message) -> Option<Message> {
        let token = self.token.clone()?;
        let mut params = object(progress.params()?)?;
        params.set("progressToken", token);
        Some(progress.with_params(Some(params.raw())))
    }

    fn wants(&self, message: &Message) -> bool {
        let is_log = message.method() == Some("notifications/message");
        is_log
            && message.size() <= LARGEST_NEWS
            && self.level.is_some_and(|level| Level::of(message) >= level)
    }

    async fn question(&mut self, message: &Message) {
        let (Some(id), Some(method)) = (message.id(), message.method()) else {
            return;
        };
        let is_known = matches!(
            method,
            "sampling/createMessage" | "elicitation/create" | "roots/list"
        );
        let open = self.questions.values().map(|open| open.request.get().len());
        let is_much = open.sum::<usize>() + message.size() > MOST_ASKED_BYTES;
        let refused = match is_known {
            false => Some((METHOD_NOT_FOUND, "clients do not know it")),
            true if self.asked >= MOST_QUESTIONS || is_much => {
                Some((INTERNAL_ERROR, "too many or too long questions in one call"))
            }
            true => None,
        };
        if let Some((code, text)) = refused {
            let answer = Message::failure(Some(id.to_owned()), code, text, None);
            self.answer_server(answer).await;
            return;
        }
        self.asked += 1;
        self.asks_at
            .get_or_insert_with(|| Instant::now() + GATHERING);
        let mut request = Object::default();
        request.set("method", raw(method));
        if let Some(params) = message.params() {
            request.set("params", params.to_owned());
        }
        let question = Question {
            id: id.to_owned(),
            request: request.raw(),
        };
        self.questions
            .insert(format!("input-{}", self.asked), question);
    }

    async fn answer_server(&mut self, answer: Message) {
        if let Some(seat) = &mut self.seat {
            seat.answer(answer).await;
        }
    }

    /// Passes on what the client has answered in a request; what is missing stays asked. How much was
    /// answered.
    pub(crate) async fn answered(&mut self, asked: &Asked, answers: &Object) -> usize {
        self.token = asked.progress_token();
        let mut count = 0;
        for (key, answer) in answers.iter() {
            if let Some(question) = self.questions.remove(key) {
                count += 1;
                self.answer_server(Message::result(question.id, answer.to_owned()))
                    .await;
            }
        }
        count
    }

    pub(crate) fn has_questions(&self) -> bool {
        !self.questions.is_empty()
    }

    pub(crate) fn input_required(&self, state: &str) -> Message {
        let mut requests = Object::default();
        for (key, question) in &self.questions {
            requests.set(key, question.request.clone());
        }
        let mut result = Object::default();
        result.set("resultType", raw("input_required"));
        result.set("inputRequests", requests.raw());
        result.set("requestState", raw(state));
        Message::result(Box::default(), result.raw())
    }

    /// Its process is not used again.
    pub(crate) fn discard(mut self) -> Option<Arc<Greeting>> {
        let seat = self.seat.take()?;
        Some(Arc::clone(&seat.child.greeting))
    }

    /// After the answer. What the server still wants to know it does not get to know.
    pub(crate) async fn end(mut self) -> Option<Arc<Greeting>> {
        let questions = std::mem::take(&mut self.questions);
        let mut seat = self.seat.take()?;
        for question in questions.into_values() {
            seat.answer(over(question.id)).await;
        }
        let greeting = Arc::clone(&seat.child.greeting);
        self.seats.give_back(seat);
        Some(greeting)
    }
}

/// The server is told that nobody waits any more, and gets some time to take note of it.
impl Drop for Call {
    fn drop(&mut self) {
        let Some(mut seat) = self.seat.take() else {
            return;
        };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        self.answering = Box::pin(pending());
        let questions = std::mem::take(&mut self.questions);
        let seats = self.seats.clone();
        runtime.spawn(async move {
            for question in questions.into_values() {
                seat.answer(over(question.id)).await;
            }
            sleep(SETTLING).await;
            seats.give_back(seat);
        });
    }
}

fn over(question: Box<RawValue>) -> Message {
    let text = "the call it was asked for is over";
    Message::failure(Some(question), INTERNAL_ERROR, text, None)
}

/// Never, when there is no such time.
async fn until(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => pending().await,
    }
}

async fn heard(seat: &mut Option<Seat>) -> Heard {
    match seat {
        Some(seat) => seat.child.inbound.next().await,
        None => Heard::Ended,
    }
}

/// Between two calls nobody could be asked.
async fn refuse_questions(seat: &mut Seat) {
    while let Some(Heard::Message(message)) = seat.child.inbound.next().now_or_never() {
        if let (Kind::Request, Some(id)) = (message.kind(), message.id()) {
            seat.answer(over(id.to_owned())).await;
        }
    }
}

async fn set_level(seat: &mut Seat, level: Option<Level>) {
    let Some(level) = level.filter(|level| seat.level != Some(*level)) else {
        return;
    };
    if !seat.child.greeting.has("logging") {
        return;
    }
    if level.set_on(&seat.child.connection).await {
        seat.level = Some(level);
    }
}

/// Until the call has an answer or a question.
pub(crate) async fn run(
    mut call: Call,
    news: &mpsc::Sender<Message>,
) -> Result<(Result<Message, CallError>, Call), Box<Call>> {
    loop {
        match call.step().await {
            // Whoever does not read loses news, and holds nothing up.
            Step::News(message) => drop(timeout(Duration::from_secs(5), news.send(message)).await),
            Step::Asks => return Err(Box::new(call)),
            Step::Answer(answer) => return Ok((answer, call)),
        }
    }
}
