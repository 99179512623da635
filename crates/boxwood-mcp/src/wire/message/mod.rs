//! JSON-RPC messages. Only the fields that are needed are parsed.

mod ambiguous_keys;
pub(super) mod object;

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use ambiguous_keys::AmbiguousKey;
use object::{BadObject, Object, raw, text};

/// Maximum length of ids and methods.
const MAX_NAME_BYTES: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Request,
    Notification,
    Response,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadMessage {
    #[error("the message is not UTF-8")]
    NotUtf8,
    #[error("invalid message: {0}")]
    Json(BadObject),
    #[error("batches are not supported; send one message at a time")]
    Batch,
    #[error("`jsonrpc` must be \"2.0\"")]
    Version,
    #[error("`id` must be a string or a number of at most {MAX_NAME_BYTES} bytes")]
    Id,
    #[error("`method` must be a string of at most {MAX_NAME_BYTES} bytes")]
    Method,
    #[error("`params` must be an object or an array")]
    Params,
    #[error("the message is not a request, notification or response")]
    Shape,
    #[error("ambiguous key `{}`: some servers read it as `{}`", cut(&.0.key), .0.protocol_key)]
    AmbiguousKey(AmbiguousKey),
}

impl BadMessage {
    /// The JSON-RPC error code.
    pub(crate) fn code(&self) -> i64 {
        match self {
            Self::NotUtf8 | Self::Json(BadObject::NotJson(_)) => -32700,
            _ => -32600,
        }
    }
}

/// Keeps all fields, in order and with their original text.
#[derive(Clone)]
pub(crate) struct Message {
    fields: Object,
    kind: Kind,
    method: Option<Box<str>>,
    permit: Option<BodyPermit>,
}

impl Message {
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, BadMessage> {
        let text = std::str::from_utf8(bytes).map_err(|_| BadMessage::NotUtf8)?;
        let text = text.trim_ascii();
        if text.starts_with('[') {
            return Err(BadMessage::Batch);
        }
        Self::read(Object::parse(text).map_err(BadMessage::Json)?)
    }

    /// Refuses messages of clients with keys that a server could read differently from the tool filter.
    pub(crate) fn of_client(self) -> Result<Self, BadMessage> {
        let keys = self.fields.iter().map(|(key, _)| key);
        let ambiguous = ambiguous_keys::in_message(keys).or_else(|| {
            let method = self.method().unwrap_or_default();
            ambiguous_keys::in_params(method, self.params()?)
        });
        match ambiguous {
            None => Ok(self),
            Some(ambiguous) => Err(BadMessage::AmbiguousKey(ambiguous)),
        }
    }

    fn read(fields: Object) -> Result<Self, BadMessage> {
        if fields.text("jsonrpc").as_deref() != Some("2.0") {
            return Err(BadMessage::Version);
        }
        let id = fields.get("id").map(RawValue::get);
        if id.is_some_and(|id| !is_id(id) && id != "null") {
            return Err(BadMessage::Id);
        }
        let has_id = id.is_some_and(|id| id != "null");
        let Some(method) = fields.get("method") else {
            let is_response = (has_id && fields.get("result").is_some()) || has_error(&fields);
            return if is_response {
                Ok(Self::new(fields, Kind::Response, None))
            } else {
                Err(BadMessage::Shape)
            };
        };
        let method = text(method).filter(|method| method.len() <= MAX_NAME_BYTES);
        let method = method.ok_or(BadMessage::Method)?;
        let params = fields.get("params").map_or("{}", RawValue::get);
        if !params.starts_with(['{', '[']) {
            return Err(BadMessage::Params);
        }
        match id {
            None => Ok(Self::new(fields, Kind::Notification, Some(method))),
            Some(_) if has_id => Ok(Self::new(fields, Kind::Request, Some(method))),
            Some(_) => Err(BadMessage::Id),
        }
    }

    fn new(fields: Object, kind: Kind, method: Option<String>) -> Self {
        let method = method.map(String::into_boxed_str);
        Self {
            fields,
            kind,
            method,
            permit: None,
        }
    }

    /// Attaches the permit of the request body. Copies of the message keep it.
    pub(crate) fn counted(self, permit: Option<&BodyPermit>) -> Self {
        Self {
            permit: permit.cloned(),
            ..self
        }
    }

    pub(crate) fn permit(&self) -> Option<BodyPermit> {
        self.permit.clone()
    }

    pub(crate) fn request(id: Box<RawValue>, method: &str, params: Option<Box<RawValue>>) -> Self {
        let fields = Object::of([("jsonrpc", raw("2.0")), ("id", id), ("method", raw(method))]);
        Self::new(fields, Kind::Request, Some(method.to_owned())).with_params(params)
    }

    pub(crate) fn notification(method: &str, params: Option<Box<RawValue>>) -> Self {
        let fields = [("jsonrpc", raw("2.0")), ("method", raw(method))];
        let method = Some(method.to_owned());
        Self::new(Object::of(fields), Kind::Notification, method).with_params(params)
    }

    pub(crate) fn result(id: Box<RawValue>, result: Box<RawValue>) -> Self {
        let fields = [("jsonrpc", raw("2.0")), ("id", id), ("result", result)];
        Self::new(Object::of(fields), Kind::Response, None)
    }

    /// Without an id if the request's id could not be parsed.
    pub(crate) fn failure(
        id: Option<Box<RawValue>>,
        code: i64,
        message: &str,
        data: Option<Box<RawValue>>,
    ) -> Self {
        let mut error = Object::of([("code", raw(&code)), ("message", raw(message))]);
        if let Some(data) = data {
            error.set("data", data);
        }
        let fields = Object::of([
            ("jsonrpc", raw("2.0")),
            ("id", id.unwrap_or_default()),
            ("error", error.raw()),
        ]);
        Self::new(fields, Kind::Response, None)
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// `None` for notifications and for errors without an id.
    pub(crate) fn id(&self) -> Option<&RawValue> {
        self.fields.get("id").filter(|id| id.get() != "null")
    }

    pub(crate) fn method(&self) -> Option<&str> {
        self.method.as_deref()
    }

    pub(crate) fn params(&self) -> Option<&RawValue> {
        self.fields.get("params")
    }

    /// The result of a response. `None` for errors.
    pub(crate) fn outcome(&self) -> Option<&RawValue> {
        match self.error() {
            Some(_) => None,
            None => self.fields.get("result"),
        }
    }

    pub(crate) fn error(&self) -> Option<&RawValue> {
        self.fields
            .get("error")
            .filter(|error| error.get() != "null")
    }

    /// `error.code` and `error.message`.
    pub(crate) fn error_parts(&self) -> Option<(i64, String)> {
        let error = Object::parse(self.error()?.get()).ok()?;
        let code = serde_json::from_str(error.get("code")?.get()).ok()?;
        Some((code, error.text("message").unwrap_or_default()))
    }

    /// `params._meta`, if it is an object.
    pub(crate) fn meta(&self) -> Option<Object> {
        meta(self.params()?)
    }

    pub(crate) fn with_id(mut self, id: Box<RawValue>) -> Self {
        self.fields.set("id", id);
        self
    }

    pub(crate) fn with_params(mut self, params: Option<Box<RawValue>>) -> Self {
        match params {
            Some(params) => self.fields.set("params", params),
            None => drop(self.fields.remove("params")),
        }
        self
    }

    /// The request with other parameters, or another request with the same id.
    pub(crate) fn with_call(&self, method: &str, params: Option<Box<RawValue>>) -> Self {
        if self.method() == Some(method) {
            return self.clone().with_params(params);
        }
        let id = self.id().map(ToOwned::to_owned);
        Self::request(id.unwrap_or_default(), method, params)
    }

    pub(crate) fn with_result(mut self, result: Box<RawValue>) -> Self {
        self.fields.set("result", result);
        self
    }

    /// On one line.
    pub(crate) fn json(&self) -> Bytes {
        self.written(0).into()
    }

    /// On one line, with a line break.
    pub(crate) fn line(&self) -> Bytes {
        let mut line = self.written(1);
        line.push(b'\n');
        line.into()
    }

    /// Approximate size in bytes.
    pub(crate) fn size(&self) -> usize {
        self.fields.size()
    }

    fn written(&self, extra_capacity: usize) -> Vec<u8> {
        let mut written = Vec::with_capacity(self.size() + extra_capacity);
        // Writing raw text into memory cannot fail.
        if serde_json::to_writer(&mut written, &self.fields).is_err() {
            written.clear();
        }
        // JSON strings contain no raw line breaks, so these are whitespace.
        for byte in &mut written {
            if matches!(byte, b'\n' | b'\r') {
                *byte = b' ';
            }
        }
        written
    }
}

pub(crate) fn is_notification(method: &str) -> bool {
    method.starts_with("notifications/")
}

/// `_meta` of params or of a result, if it is an object.
pub(crate) fn meta(value: &RawValue) -> Option<Object> {
    #[derive(Deserialize)]
    struct Meta<'a> {
        #[serde(borrow, rename = "_meta")]
        meta: Option<&'a RawValue>,
    }
    let Meta { meta } = serde_json::from_str(value.get()).ok()?;
    Object::parse(meta?.get()).ok()
}

fn cut(key: &str) -> String {
    key.chars().take(80).collect()
}

fn has_error(fields: &Object) -> bool {
    let error = fields.get("error").map(RawValue::get);
    error.is_some_and(|error| error.starts_with('{'))
}

fn is_id(id: &str) -> bool {
    let is_number = |first: char| first == '-' || first.is_ascii_digit();
    id.len() <= MAX_NAME_BYTES && id.starts_with(|first| first == '"' || is_number(first))
}

/// Memory accounting of a request body. Passed in the request's extensions and released with the last copy
/// of its bytes, which may be long after the HTTP response started.
#[derive(Clone)]
pub struct BodyPermit {
    _counted: Arc<dyn Any + Send + Sync>,
}

impl BodyPermit {
    pub fn new(counted: impl Any + Send + Sync) -> Self {
        Self {
            _counted: Arc::new(counted),
        }
    }
}

/// Without arguments and results, which may contain secrets.
impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("kind", &self.kind)
            .field("method", &self.method)
            .field("id", &self.id().map(RawValue::get))
            .field("size", &self.size())
            .finish_non_exhaustive()
    }
}
