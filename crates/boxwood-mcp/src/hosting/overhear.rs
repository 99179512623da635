//! What a server writes to stderr while it starts, told line by line as it comes.
//!
//! The runtime only has the whole of it, so what is new is found by looking again and again.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use boxwood_api::SessionId;

use super::greeting;
use super::kit::Kit;
use super::redact::Secrets;
use super::tail::{Lines, TURN_BYTES, head, tail};
use super::track::Track;

const LOOK_EVERY: Duration = Duration::from_millis(300);
/// Enough of what was told to find it again where the oldest was forgotten.
const KNOWN_BYTES: usize = 1024;

pub(crate) struct Overhearing<'a> {
    pub(crate) kit: &'a Arc<Kit>,
    pub(crate) session: &'a SessionId,
    pub(crate) secrets: &'a Secrets,
    pub(crate) track: &'a Track,
    pub(crate) told: Told,
}

impl Overhearing<'_> {
    /// For as long as it is polled.
    pub(crate) async fn go_on(&mut self) -> Infallible {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            self.look().await;
        }
    }

    /// Tells what has come since the last look, also a line that has not ended.
    pub(crate) async fn finish(mut self) {
        self.look().await;
        let (track, secrets) = (self.track, self.secrets);
        self.told
            .lines
            .end(|line| track.tell(secrets.hide_line(line)));
    }

    async fn look(&mut self) {
        // Before its process is there, there is nothing to hear.
        if let Some(text) = greeting::said(self.kit, self.session).await {
            let (track, secrets) = (self.track, self.secrets);
            let tell = |line: &str| track.tell(secrets.hide_line(line));
            self.told.news(&text, tell).await;
        }
    }
}

#[derive(Default)]
pub(crate) struct Told {
    seen: String,
    lines: Lines,
}

impl Told {
    /// Given up halfway, the next look goes on from there.
    async fn news(&mut self, text: &str, mut tell: impl FnMut(&str)) {
        // The first bytes of a character whose others are still to come.
        let text = text.trim_end_matches(char::REPLACEMENT_CHARACTER);
        let mut new = text.strip_prefix(self.seen.as_str()).unwrap_or_else(|| {
            let known = tail(&self.seen, KNOWN_BYTES);
            let found = text.rfind(known).map(|at| at + known.len());
            &text[found.unwrap_or_default()..]
        });
        text[..text.len() - new.len()].clone_into(&mut self.seen);
        while !new.is_empty() {
            let piece = head(new, TURN_BYTES);
            self.lines.feed(piece.as_bytes(), &mut tell);
            self.seen.push_str(piece);
            new = &new[piece.len()..];
            // Others have their turn: looking for secrets takes its time.
            tokio::task::yield_now().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn each_line_is_told_once_also_when_the_oldest_are_forgotten() {
        let mut told = Told::default();
        let mut heard = Vec::new();
        let long = "x".repeat(2 * KNOWN_BYTES);
        for text in [
            "",
            "one\ntw",
            "one\ntwo\u{fffd}",
            &format!("one\ntwoé\n{long}\n"),
            &format!("{}\nthree\n", &long[9..]),
            "nothing of that\n",
        ] {
            told.news(text, |line| heard.push(line.to_owned())).await;
        }
        assert_eq!(heard, ["one", "twoé", &long, "three", "nothing of that"]);
    }

    #[tokio::test]
    async fn a_look_that_is_given_up_loses_nothing_and_tells_nothing_twice() {
        let lines: Vec<_> = (0..2000).map(|number| number.to_string()).collect();
        let text = lines.join("\n") + "\n";
        let (mut told, mut heard) = (Told::default(), Vec::new());
        let look = told.news(&text, |line| heard.push(line.to_owned()));
        assert_eq!(look.now_or_never(), None, "it paused");
        assert!(!heard.is_empty() && heard.len() < lines.len());
        told.news(&text, |line| heard.push(line.to_owned())).await;
        assert_eq!(heard, lines);
    }
}
