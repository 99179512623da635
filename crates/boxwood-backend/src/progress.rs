//! News of something slow, for whoever wants to hear it.

use std::fmt;
use std::sync::Arc;

use boxwood_api::ImageProgress;

/// Where a backend says how a pull comes along. Cheap to clone; saying something to nobody costs
/// nothing. The listener must not block: it is called from the backend's own tasks.
#[derive(Clone, Default)]
pub struct Progress(Option<Arc<dyn Fn(ImageProgress) + Send + Sync>>);

impl Progress {
    /// Nobody listens.
    pub fn silent() -> Self {
        Self(None)
    }

    pub fn to(listener: impl Fn(ImageProgress) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(listener)))
    }

    /// One line about `image`.
    pub fn say(&self, image: &str, text: impl Into<String>) {
        if let Some(listener) = &self.0 {
            listener(ImageProgress::new(image, text));
        }
    }

    /// The same with a count, where the engine counts.
    pub fn report(&self, news: impl FnOnce() -> ImageProgress) {
        if let Some(listener) = &self.0 {
            listener(news());
        }
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let listens = if self.0.is_some() { "heard" } else { "silent" };
        f.debug_tuple("Progress").field(&listens).finish()
    }
}
