//! The skills that a conversation has activated, from the query and from earlier `activate` calls.

use std::collections::{BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};

use boxwood_api::{AgentQuery, SessionId};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// Number of remembered conversations; the oldest are removed first.
const MAX_CONVERSATIONS: usize = 1024;

/// In bytes. A longer one is remembered by its digest.
const MAX_QUERY_ID_BYTES: usize = 256;

/// The query within its session, or the session alone if queries have no ids.
type Key = (SessionId, Option<String>);

/// The activated skills of each conversation, in the order of their first activation.
#[derive(Default)]
pub(crate) struct Activations(Mutex<VecDeque<(Key, BTreeSet<String>)>>);

impl Activations {
    pub(crate) fn add(&self, session: &SessionId, query: &AgentQuery, skill: &str) {
        let key = key(session, query);
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, names)) = all.iter_mut().find(|(existing, _)| *existing == key) {
            names.insert(skill.to_owned());
            return;
        }
        if all.len() == MAX_CONVERSATIONS {
            all.pop_front();
        }
        all.push_back((key, BTreeSet::from([skill.to_owned()])));
    }

    /// The skills that were activated in this conversation.
    pub(crate) fn of(&self, session: &SessionId, query: &AgentQuery) -> BTreeSet<String> {
        let key = key(session, query);
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = all.iter().find(|(existing, _)| *existing == key);
        found.map(|(_, names)| names.clone()).unwrap_or_default()
    }
}

/// The skills that the platform reports as active.
pub(crate) fn claimed(query: &AgentQuery) -> BTreeSet<String> {
    named(query.variables.get("_activated_skills")).unwrap_or_default()
}

/// The skills that the conversation's pipeline allows; `None` allows all.
pub(crate) fn bound(query: &AgentQuery) -> Option<BTreeSet<String>> {
    match query.variables.get("_pipeline_bound_skills") {
        list @ Some(Value::Array(_)) => named(list),
        _ => None,
    }
}

/// A list of names, or a map with the names as keys.
fn named(value: Option<&Value>) -> Option<BTreeSet<String>> {
    match value? {
        Value::Array(items) => Some(
            items
                .iter()
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect(),
        ),
        Value::Object(map) => Some(map.keys().cloned().collect()),
        _ => None,
    }
}

/// The id of a query as text.
pub(crate) fn query_id(query: &AgentQuery) -> Option<String> {
    let text = match query.query_id.as_ref()? {
        Value::Null => return None,
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    Some(if text.len() <= MAX_QUERY_ID_BYTES {
        text
    } else {
        let digest = Sha256::digest(text.as_bytes());
        let hex: String = digest.iter().fold(String::new(), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        });
        format!("sha256:{hex}")
    })
}

fn key(session: &SessionId, query: &AgentQuery) -> Key {
    (session.clone(), query_id(query))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn session(name: &str) -> SessionId {
        SessionId::new(name).expect("a legal id")
    }

    fn query(json: Value) -> AgentQuery {
        serde_json::from_value(json).expect("a query")
    }

    #[test]
    fn an_activation_applies_only_to_its_query() {
        let activations = Activations::default();
        let first = query(json!({"query_id": 7}));
        activations.add(&session("person_a"), &first, "csv");
        assert!(activations.of(&session("person_a"), &first).contains("csv"));
        let later = query(json!({"query_id": 8}));
        assert!(activations.of(&session("person_a"), &later).is_empty());
        // Another platform may count from one as well.
        assert!(activations.of(&session("person_b"), &first).is_empty());
    }

    #[test]
    fn a_long_query_id_is_remembered_by_its_digest() {
        let long = query(json!({"query_id": "x".repeat(1 << 20)}));
        assert_eq!(query_id(&long).expect("one").len(), 71);
        let other = query(json!({"query_id": format!("{}y", "x".repeat(1 << 20))}));
        assert_ne!(query_id(&long), query_id(&other));
    }

    #[test]
    fn without_a_query_id_an_activation_applies_to_the_session() {
        let activations = Activations::default();
        let unnumbered = query(json!({}));
        activations.add(&session("person_a"), &unnumbered, "csv");
        assert!(
            activations
                .of(&session("person_a"), &unnumbered)
                .contains("csv")
        );
    }

    #[test]
    fn activated_skills_are_a_list_or_a_map() {
        for value in [json!(["csv", 3]), json!({"csv": {"any": "thing"}})] {
            let query = query(json!({"variables": {"_activated_skills": value}}));
            assert_eq!(claimed(&query), BTreeSet::from(["csv".to_owned()]));
        }
    }

    #[test]
    fn only_a_list_binds_a_pipeline() {
        let bound_by = |value| {
            bound(&query(
                json!({"variables": {"_pipeline_bound_skills": value}}),
            ))
        };
        assert_eq!(bound_by(json!(null)), None);
        assert_eq!(bound_by(json!([])), Some(BTreeSet::new()));
        assert_eq!(
            bound_by(json!(["a"])),
            Some(BTreeSet::from(["a".to_owned()]))
        );
    }

    #[test]
    fn only_the_latest_conversations_are_remembered() {
        let activations = Activations::default();
        let numbered = |number: usize| query(json!({"query_id": number}));
        for number in 0..=MAX_CONVERSATIONS {
            activations.add(&session("s"), &numbered(number), "csv");
        }
        assert!(activations.of(&session("s"), &numbered(0)).is_empty());
        assert!(activations.of(&session("s"), &numbered(1)).contains("csv"));
        assert_eq!(
            activations.0.lock().expect("not poisoned").len(),
            MAX_CONVERSATIONS
        );
    }
}
