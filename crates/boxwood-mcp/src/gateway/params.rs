//! Access to single values of `params`.

use serde::Serialize;
use serde_json::value::RawValue;

use crate::gateway::error::RpcError;
use crate::gateway::json::{object, raw};
use crate::wire::Object;

pub(crate) fn get(params: Option<&RawValue>, key: &str) -> Option<Box<RawValue>> {
    let object = Object::parse(params?.get()).ok()?;
    object.get(key).map(ToOwned::to_owned)
}

pub(crate) fn text(params: Option<&RawValue>, key: &str) -> Option<String> {
    let object = Object::parse(params?.get()).ok()?;
    object.text(key)
}

/// The object `name` of a request; empty if it is missing.
pub(crate) fn parsed(raw: Option<&RawValue>, name: &str) -> Result<Object, RpcError> {
    let parsed = raw.map_or(Ok(Object::default()), |raw| Object::parse(raw.get()));
    parsed.map_err(|bad| RpcError::malformed(format!("invalid `{name}`: {bad}")))
}

/// `_meta` of a request, for another request on behalf of the same client. Without the progress token,
/// which belongs to one request.
pub(crate) fn meta_alone(params: &Object) -> Object {
    let mut alone = Object::default();
    if let Some(mut meta) = params.get("_meta").and_then(object) {
        meta.remove("progressToken");
        alone.set("_meta", meta.raw());
    }
    alone
}

/// `{"key": value}`.
pub(crate) fn of<T: Serialize + ?Sized>(key: &str, value: &T) -> Box<RawValue> {
    Object::of([(key, raw(value))]).raw()
}

/// `{}`.
pub(crate) fn empty() -> Box<RawValue> {
    Object::default().raw()
}
