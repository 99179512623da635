//! Clients branch on these words.

use boxwood_api::{ErrorBody, ErrorCode, Mechanism};

#[test]
fn error_codes_keep_their_words() {
    let words = ErrorCode::ALL.map(ErrorCode::as_str).join("\n");
    insta::assert_snapshot!(words, @r"
    validation_error
    session_not_found
    managed_process_not_found
    session_conflict
    managed_process_conflict
    backend_unavailable
    internal_error
    capacity
    session_gone
    image_not_found
    unauthorized
    forbidden
    payload_too_large
    not_found
    timeout
    replay_gone
    ");
}

#[test]
fn words_and_json_agree() {
    for code in ErrorCode::ALL {
        let json = serde_json::to_value(code).expect("JSON");
        assert_eq!(json, code.as_str());
    }
    for mechanism in Mechanism::ALL {
        let json = serde_json::to_value(mechanism).expect("JSON");
        assert_eq!(json, mechanism.as_str());
    }
}

#[test]
fn an_error_body_has_the_shape_of_langbot_box() {
    let body = ErrorBody::new(ErrorCode::SessionNotFound, "session a not found", None);
    assert_eq!(
        serde_json::to_string(&body).expect("JSON"),
        r#"{"error":{"code":"session_not_found","message":"session a not found"}}"#
    );
}
