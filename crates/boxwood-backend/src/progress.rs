//! Progress of image pulls.

use std::sync::Arc;

use boxwood_api::ImageProgress;

/// Receives the progress of a pull. Cheap to clone. The listener must not block: it is called from the
/// backend's tasks.
#[derive(Clone, Default)]
pub struct Progress(Option<Arc<dyn Fn(ImageProgress) + Send + Sync>>);

impl Progress {
    /// Discards all progress.
    pub fn silent() -> Self {
        Self(None)
    }

    pub fn to(listener: impl Fn(ImageProgress) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(listener)))
    }

    /// Reports one line about `image`.
    pub fn say(&self, image: &str, text: impl Into<String>) {
        if let Some(listener) = &self.0 {
            listener(ImageProgress::new(image, text));
        }
    }

    /// Reports progress with counts.
    pub fn report(&self, progress: impl FnOnce() -> ImageProgress) {
        if let Some(listener) = &self.0 {
            listener(progress());
        }
    }
}
