//! Cache of parsed session-id templates, with a flag for errors that were already reported.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use crate::template::{LONGEST_TEMPLATE, Template, TemplateError, mark};

/// So many texts are remembered; the one that was not used for longest goes first.
const MOST_TEXTS: usize = 64;

#[derive(Default)]
pub(crate) struct Templates {
    /// The one used last stands last.
    known: Mutex<VecDeque<Known>>,
}

struct Known {
    text: String,
    parsed: Result<Arc<Template>, TemplateError>,
    told: bool,
}

impl Templates {
    pub(crate) fn parse(&self, text: &str) -> Result<Arc<Template>, TemplateError> {
        self.with(text, |known| known.parsed.clone())
    }

    /// Returns true for the first call with this text.
    pub(crate) fn is_news(&self, text: &str) -> bool {
        self.with(text, |known| !std::mem::replace(&mut known.told, true))
    }

    fn with<T>(&self, text: &str, look: impl FnOnce(&mut Known) -> T) -> T {
        let text = text.trim();
        let name = name(text);
        let mut all = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let at = all.iter().position(|known| known.text == name);
        let mut known = at.and_then(|at| all.remove(at)).unwrap_or_else(|| Known {
            text: name.into_owned(),
            parsed: Template::parse(text).map(Arc::new),
            told: false,
        });
        let seen = look(&mut known);
        all.push_back(known);
        if all.len() > MOST_TEXTS {
            all.pop_front();
        }
        seen
    }
}

/// Of one that is too long to be a template only a mark is kept.
fn name(text: &str) -> Cow<'_, str> {
    if text.len() <= LONGEST_TEMPLATE {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!("\0{}", mark(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_read_once() {
        let templates = Templates::default();
        let first = templates.parse("{launcher_id}").expect("a template");
        let again = templates.parse(" {launcher_id} ").expect("a template");
        assert!(Arc::ptr_eq(&first, &again));
        let other = templates.parse("{sender_id}").expect("a template");
        assert_ne!(first, other);
    }

    #[test]
    fn each_text_is_news_once() {
        let templates = Templates::default();
        let long = "x".repeat(LONGEST_TEMPLATE + 1);
        for text in ["{", "}", &long] {
            assert!(templates.parse(text).is_err());
            assert!(templates.is_news(text));
            assert!(!templates.is_news(text));
            assert!(templates.parse(text).is_err());
        }
    }

    #[test]
    fn the_texts_that_are_used_are_the_ones_that_stay() {
        let templates = Templates::default();
        assert!(templates.is_news("used"));
        for number in 0..1_000 {
            assert!(templates.is_news(&format!("t{number}")));
            assert!(!templates.is_news("used"));
        }
        let all = templates.known.lock().expect("not poisoned");
        assert_eq!(all.len(), MOST_TEXTS);
    }
}
