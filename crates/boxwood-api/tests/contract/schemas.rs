//! The shapes that generated clients are built from.

use boxwood_api::{ProcessSpec, SpecRequest, from_json};
use utoipa::PartialSchema as _;

#[test]
fn the_spec_keeps_its_schema() {
    insta::assert_json_snapshot!("spec_request", SpecRequest::schema());
    insta::assert_json_snapshot!("process_spec", ProcessSpec::schema());
}

#[test]
fn the_schema_knows_exactly_the_fields_that_are_read() {
    let schema = serde_json::to_value(SpecRequest::schema()).expect("JSON");
    let mut described: Vec<&str> = schema["properties"]
        .as_object()
        .expect("properties")
        .keys()
        .map(String::as_str)
        .collect();
    let refused = from_json::<SpecRequest>(br#"{"?": 1}"#).expect_err("an unknown field");
    let refused = refused.to_string();
    let (_, read) = refused.split_once("expected one of ").expect("a list");
    let mut read: Vec<&str> = read.split(", ").collect();
    described.sort_unstable();
    read.sort_unstable();
    assert_eq!(described, read);
}
