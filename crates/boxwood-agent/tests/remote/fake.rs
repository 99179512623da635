//! A fake daemon in this process, over HTTP.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant as RealInstant};

use boxwood_agent::Remote;
use boxwood_client::Endpoint;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// How it handles requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Answers,
    /// Accepts connections and requests, and does not respond.
    Stopped,
    /// Closes the connection in every request.
    Closes,
    /// Requires a token.
    Strict,
}

const STATUS: &str = r#"{"backend":{"name":"fake","available":true},"active_sessions":2,"managed_processes":0,"session_ttl_sec":300}"#;

pub(crate) struct Fake {
    port: u16,
    mode: watch::Sender<Mode>,
    seen: Arc<Mutex<Vec<String>>>,
    accepting: Option<JoinHandle<()>>,
}

impl Fake {
    pub(crate) async fn start() -> Self {
        let mut fake = Self {
            port: 0,
            mode: watch::Sender::new(Mode::Answers),
            seen: Arc::default(),
            accepting: None,
        };
        fake.open().await;
        fake
    }

    /// One without a listener.
    pub(crate) async fn absent() -> Self {
        let mut fake = Self::start().await;
        fake.vanish().await;
        fake
    }

    pub(crate) fn remote(&self) -> Remote {
        let url = format!("http://127.0.0.1:{}", self.port);
        let endpoint: Endpoint = url.parse().expect("a URL");
        Remote::new(endpoint, None)
    }

    pub(crate) fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }

    /// Listens, at the same port as before if there was one.
    pub(crate) async fn open(&mut self) {
        let listener = TcpListener::bind(("127.0.0.1", self.port)).await;
        let listener = listener.expect("a port");
        self.port = listener.local_addr().expect("an address").port();
        let (mode, seen) = (self.mode.subscribe(), Arc::clone(&self.seen));
        self.accepting = Some(tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream, mode.clone(), Arc::clone(&seen)));
            }
        }));
    }

    /// Closes the listener and all connections.
    pub(crate) async fn vanish(&mut self) {
        if let Some(accepting) = self.accepting.take() {
            accepting.abort();
            let _ = accepting.await;
        }
    }

    /// How many requests it got for this target.
    pub(crate) fn requests(&self, target: &str) -> usize {
        let seen = self.seen.lock().expect("not poisoned");
        seen.iter().filter(|seen| *seen == target).count()
    }
}

async fn serve(mut stream: TcpStream, mode: watch::Receiver<Mode>, seen: Arc<Mutex<Vec<String>>>) {
    while let Some(target) = request(&mut stream).await {
        seen.lock().expect("not poisoned").push(target.clone());
        let mut mode = mode.clone();
        // Continues when the mode changes.
        let awake = mode.wait_for(|mode| *mode != Mode::Stopped).await;
        let Ok(now) = awake.map(|mode| *mode) else {
            return;
        };
        let error = |code: &str| format!(r#"{{"error":{{"code":"{code}","message":"no"}}}}"#);
        let (status, body) = match now {
            Mode::Closes => return,
            Mode::Strict => ("401 Unauthorized", error("unauthorized")),
            Mode::Answers | Mode::Stopped if target == "/v1/status" => {
                ("200 OK", STATUS.to_owned())
            }
            Mode::Answers | Mode::Stopped if target == "/v1/sessions" => {
                ("200 OK", "[]".to_owned())
            }
            Mode::Answers | Mode::Stopped if target == "/v1/skills/s/files/long" => {
                ("200 OK", "x".repeat((16 << 20) + 1))
            }
            Mode::Answers | Mode::Stopped => ("404 Not Found", error("not_found")),
        };
        let answer = format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// The target of the next request; its body is read and dropped.
async fn request(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).ok()?;
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let is_length = name.eq_ignore_ascii_case("content-length");
        is_length.then(|| value.trim().parse::<usize>().ok())?
    });
    let mut body = vec![0; length.unwrap_or_default()];
    stream.read_exact(&mut body).await.ok()?;
    head.split(' ').nth(1).map(str::to_owned)
}

/// The test's own clock, which moves only when told. Sockets take real time, and a clock that moved by
/// itself while they are waited for would make every answer late.
pub(crate) struct Clock {
    _hold: oneshot::Sender<()>,
}

impl Clock {
    /// In a test with `start_paused`: a blocking task keeps the clock from moving by itself.
    pub(crate) fn hold() -> Self {
        let (hold, held) = oneshot::channel::<()>();
        tokio::task::spawn_blocking(move || held.blocking_recv());
        Self { _hold: hold }
    }

    /// Moves on, a little at a time, so that whatever is due happens when it is due.
    pub(crate) async fn advance(&self, by: Duration) {
        let end = Instant::now() + by;
        while Instant::now() < end {
            let step = (end - Instant::now()).min(Duration::from_millis(250));
            tokio::time::advance(step).await;
            settle().await;
        }
    }
}

/// Lets sockets and tasks get on, in real time.
pub(crate) async fn settle() {
    for _ in 0..4 {
        std::thread::sleep(Duration::from_micros(500));
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }
}

/// Waits in real time while the test's clock stands still.
#[track_caller]
pub(crate) fn until<'a>(
    what: &'a str,
    done: impl Fn() -> bool + 'a,
) -> impl Future<Output = ()> + 'a {
    let begin = RealInstant::now();
    async move {
        while !done() {
            let waited = begin.elapsed();
            assert!(
                waited < Duration::from_secs(10),
                "waited too long for {what}"
            );
            settle().await;
        }
    }
}
