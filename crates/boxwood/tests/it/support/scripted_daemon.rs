//! A daemon with scripted responses, which can end a response early.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::Value;

#[derive(Clone, Debug)]
pub(crate) struct ReceivedRequest {
    pub(crate) method: String,
    pub(crate) path: String,
    headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl ReceivedRequest {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(key, _)| key == name)?;
        Some(&found.1)
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_default()
    }

    /// `POST /mcp/time`
    pub(crate) fn line(&self) -> String {
        format!("{} {}", self.method, self.path)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct ScriptedResponse {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: String,
    /// Whether the connection is cut before the body has ended.
    is_cut: bool,
    /// Whether the stream stays open after it.
    is_open: bool,
}

pub(crate) fn response(status: u16, kind: &str, body: impl Into<String>) -> ScriptedResponse {
    ScriptedResponse {
        status,
        headers: vec![("content-type", kind.to_owned())],
        body: body.into(),
        is_cut: false,
        is_open: false,
    }
}

pub(crate) fn json(value: &Value) -> ScriptedResponse {
    response(200, "application/json", value.to_string())
}

pub(crate) fn events(body: impl Into<String>) -> ScriptedResponse {
    response(200, "text/event-stream", body)
}

impl ScriptedResponse {
    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }

    pub(crate) fn cut(mut self) -> Self {
        self.is_cut = true;
        self
    }

    pub(crate) fn open(mut self) -> Self {
        self.is_open = true;
        self
    }
}

pub(crate) struct Scripted {
    pub(crate) url: String,
    requests: Arc<Mutex<Vec<ReceivedRequest>>>,
}

impl Scripted {
    /// `respond` receives every request; its threads end with the test's process.
    pub(crate) fn start(
        respond: impl Fn(&ReceivedRequest) -> ScriptedResponse + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (recorded, respond) = (Arc::clone(&requests), Arc::new(respond));
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (recorded, respond) = (Arc::clone(&recorded), Arc::clone(&respond));
                thread::spawn(move || {
                    let Some(request) = read(&stream) else { return };
                    recorded.lock().expect("unpoisoned").push(request.clone());
                    write(stream, &respond(&request));
                });
            }
        });
        Self { url, requests }
    }

    pub(crate) fn requests(&self) -> Vec<ReceivedRequest> {
        self.requests.lock().expect("unpoisoned").clone()
    }

    /// The requests so far, as lines.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.requests().iter().map(ReceivedRequest::line).collect()
    }
}

fn read(stream: &TcpStream) -> Option<ReceivedRequest> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut parts = line.split(' ');
    let (method, path) = (parts.next()?.to_owned(), parts.next()?.to_owned());
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim().split_once(": ") else {
            break;
        };
        headers.push((name.to_ascii_lowercase(), value.to_owned()));
    }
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length = length.map_or(0, |(_, value)| value.parse().expect("a length"));
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(ReceivedRequest {
        method,
        path,
        headers,
        body: String::from_utf8(body).ok()?,
    })
}

/// Fails if the client has disconnected.
fn write(mut stream: TcpStream, response: &ScriptedResponse) {
    let status = response.status;
    let _ = write!(stream, "HTTP/1.1 {status} x\r\nconnection: close\r\n");
    for (name, value) in &response.headers {
        let _ = write!(stream, "{name}: {value}\r\n");
    }
    let _ = stream.write_all(b"transfer-encoding: chunked\r\n\r\n");
    if !response.body.is_empty() {
        let _ = write!(stream, "{:x}\r\n{}\r\n", response.body.len(), response.body);
    }
    let _ = stream.flush();
    if response.is_open {
        thread::sleep(Duration::from_mins(1));
    }
    if !response.is_cut {
        let _ = stream.write_all(b"0\r\n\r\n");
    }
}
