//! Mutates messages, reproducibly.

use serde_json::{Value, json};

/// A small random number generator (xorshift) with a fixed seed, so that every run is the same.
pub(crate) struct Mutator(u64);

impl Mutator {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit.max(1) as u64).expect("below a usize")
    }

    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    /// A random value of any type, often an invalid one.
    fn value(&mut self, depth: usize) -> Value {
        match self.below(if depth > 3 { 12 } else { 14 }) {
            0 => Value::Null,
            1 => json!(self.below(2) == 0),
            2 => json!(-1),
            3 => json!(self.below(1 << 20)),
            4 => json!(u64::MAX),
            5 => json!(1e300),
            6 => json!(""),
            7 => json!("x".repeat(self.below(3000))),
            8 => json!("../../../../etc/passwd"),
            9 => json!("\u{0}\u{7f}\u{1f600}\n"),
            10 => json!("/"),
            11 => json!("%s%n{0}$(id)`id`;&&|"),
            12 => json!([self.value(depth + 1), self.value(depth + 1)]),
            _ => json!({"a": self.value(depth + 1), "session_id": self.value(depth + 1)}),
        }
    }

    /// Mutates a message, which remains an object.
    pub(crate) fn bend(&mut self, message: &Value) -> Value {
        let mut bent = message.clone();
        for _ in 0..=self.below(3) {
            let mut place = &mut bent;
            // Walk down a random way and replace, remove or add there.
            loop {
                let length = match place {
                    Value::Object(map) => map.len(),
                    Value::Array(items) => items.len(),
                    _ => 0,
                };
                if length == 0 || self.below(4) == 0 {
                    break;
                }
                let at = self.below(length);
                place = match place {
                    Value::Object(map) => map.values_mut().nth(at).expect("in range"),
                    Value::Array(items) => &mut items[at],
                    _ => break,
                };
            }
            let value = self.value(0);
            match (place, self.below(3)) {
                (Value::Object(map), 0) => {
                    let key = map.keys().nth(self.below(map.len())).cloned();
                    key.map(|key| map.remove(&key));
                }
                (Value::Object(map), 1) => {
                    map.insert(format!("extra{}", self.below(9)), value);
                }
                (place, _) => *place = value,
            }
        }
        bent
    }

    /// Mutates a text, which is then usually not JSON.
    pub(crate) fn break_text(&mut self, text: &str) -> String {
        let mut characters: Vec<char> = text.chars().collect();
        for _ in 0..=self.below(6) {
            let at = self.below(characters.len());
            let other = *self.pick(&[
                '{', '}', '[', ']', '"', ',', ':', '\\', '\0', '\n', '9', 'é', '😀',
            ]);
            match self.below(4) {
                0 if !characters.is_empty() => characters[at] = other,
                1 if !characters.is_empty() => drop(characters.remove(at)),
                2 => characters.truncate(at),
                _ => characters.insert(at, other),
            }
        }
        characters.into_iter().collect()
    }
}
