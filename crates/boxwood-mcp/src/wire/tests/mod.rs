//! Connections to fake servers over in-memory pipes.

mod calls;
mod handshakes;
mod hostile;
mod inbound;
mod messages;
mod properties;

use std::sync::Arc;

use boxwood_agent::{Answer, BoxesError};
use boxwood_api::ErrorCode;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream};
use tokio::sync::{Mutex, watch};

use super::{Connection, ProtocolLog, WireLimits};
use crate::hosting::{ProcessExit, ProcessIo};

/// Small, so that a side that does not read blocks the other soon.
const PIPE: usize = 64 * 1024;

struct Pipes {
    output: Mutex<DuplexStream>,
    input: Mutex<Option<DuplexStream>>,
    exit: watch::Receiver<Option<ProcessExit>>,
}

impl ProcessIo for Pipes {
    fn next(&self) -> BoxFuture<'_, Option<Bytes>> {
        Box::pin(async {
            let mut chunk = vec![0; 16 * 1024];
            let read = self.output.lock().await.read(&mut chunk).await.ok()?;
            chunk.truncate(read);
            (read > 0).then(|| chunk.into())
        })
    }

    fn send(&self, bytes: Bytes) -> BoxFuture<'_, Answer<()>> {
        Box::pin(async move {
            let mut input = self.input.lock().await;
            let sent = match input.as_mut() {
                Some(input) => input.write_all(&bytes).await,
                None => Err(std::io::ErrorKind::BrokenPipe.into()),
            };
            sent.map_err(|error| BoxesError {
                code: ErrorCode::ManagedProcessConflict,
                message: error.to_string(),
                hint: None,
                reached: true,
            })
        })
    }

    fn close_input(&self) {
        if let Ok(mut input) = self.input.try_lock() {
            input.take();
        }
    }

    fn exited(&self) -> BoxFuture<'_, ProcessExit> {
        let mut exit = self.exit.clone();
        Box::pin(async move {
            match exit.wait_for(Option::is_some).await {
                Ok(exit) => exit.clone().unwrap_or_else(|| process_exit(0)),
                Err(_) => process_exit(0),
            }
        })
    }
}

fn process_exit(code: i32) -> ProcessExit {
    ProcessExit {
        exit_code: Some(code),
        why: None,
    }
}

/// The server's side.
struct Peer {
    input: Option<BufReader<DuplexStream>>,
    output: Option<DuplexStream>,
    exit: watch::Sender<Option<ProcessExit>>,
}

impl Peer {
    /// The next message to the server. `None` at the end of its input.
    async fn line(&mut self) -> Option<Value> {
        let mut line = String::new();
        let input = self.input.as_mut()?;
        let read = input.read_line(&mut line).await.ok()?;
        (read > 0).then(|| serde_json::from_str(&line).expect("we send JSON"))
    }

    async fn receive(&mut self) -> Value {
        self.line().await.expect("its input is open")
    }

    async fn write_line(&mut self, text: &str) {
        self.write(format!("{text}\n").as_bytes()).await;
    }

    async fn write(&mut self, bytes: &[u8]) {
        let output = self.output.as_mut().expect("its output is open");
        output.write_all(bytes).await.expect("the reader is open");
    }

    async fn respond(&mut self, request: &Value, result: &str) {
        let id = &request["id"];
        self.write_line(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#
        ))
        .await;
    }

    fn exit(&self, code: i32) {
        self.exit.send_replace(Some(process_exit(code)));
    }
}

struct Fixture {
    connection: Connection,
    peer: Peer,
    log: Arc<ProtocolLog>,
}

fn fixture(limits: WireLimits) -> Fixture {
    let (input, peer_input) = tokio::io::duplex(PIPE);
    let (peer_output, output) = tokio::io::duplex(PIPE);
    let (exit, exited) = watch::channel(None);
    let wire = Pipes {
        output: Mutex::new(output),
        input: Mutex::new(Some(input)),
        exit: exited,
    };
    let log = Arc::new(ProtocolLog::default());
    Fixture {
        connection: Connection::open(Box::new(wire), limits, Arc::clone(&log)),
        peer: Peer {
            input: Some(BufReader::new(peer_input)),
            output: Some(peer_output),
            exit,
        },
        log,
    }
}

fn raw(json: &str) -> Box<RawValue> {
    RawValue::from_string(json.to_owned()).expect("test JSON")
}

fn logged(log: &ProtocolLog, text: &str) -> bool {
    log.lines().iter().any(|line| line.contains(text))
}
