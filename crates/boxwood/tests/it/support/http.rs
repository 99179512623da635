//! Plain HTTP requests to a daemon, for routes without a verb.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

use crate::support::daemon::Daemon;

/// Status, head and body of an answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    head: String,
    body: String,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    /// The JSON in it: the body, or the last event of a stream.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        let mut events = self
            .body
            .lines()
            .filter_map(|line| line.strip_prefix("data:"));
        let text = events.next_back().unwrap_or(&self.body).trim();
        serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

pub(crate) fn request(
    daemon: &Daemon,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: Option<&Value>,
) -> Answer {
    let address = daemon.url().strip_prefix("http://").expect("an address");
    let mut stream = TcpStream::connect(address).expect("a connection");
    let timeout = Some(Duration::from_mins(2));
    stream.set_read_timeout(timeout).expect("a timeout");
    let body = body.map(Value::to_string).unwrap_or_default();
    let mut head = format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-length: {}\r\n\
         content-type: application/json\r\n",
        body.len()
    );
    for (name, value) in headers {
        head += name;
        head += ": ";
        head += value;
        head += "\r\n";
    }
    write!(stream, "{head}\r\n{body}").expect("sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    Answer {
        status: status.expect("a status"),
        head: head.to_owned(),
        body: body.to_owned(),
    }
}

pub(crate) fn get(daemon: &Daemon, path: &str) -> Answer {
    request(daemon, "GET", path, &[], None)
}

pub(crate) fn post(daemon: &Daemon, path: &str, body: &Value) -> Answer {
    request(daemon, "POST", path, &[], Some(body))
}
