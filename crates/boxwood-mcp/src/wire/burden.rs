//! What the bytes of a client's request are counted by.

use std::any::Any;
use std::sync::Arc;

/// Goes with a request into the gateway, in its extensions, and is given up with the last copy of its bytes:
/// the HTTP answer may have begun long before. Whoever counts knows what is in it.
#[derive(Clone)]
pub struct Burden {
    _counted: Arc<dyn Any + Send + Sync>,
}

impl Burden {
    pub fn new(counted: impl Any + Send + Sync) -> Self {
        Self {
            _counted: Arc::new(counted),
        }
    }
}
