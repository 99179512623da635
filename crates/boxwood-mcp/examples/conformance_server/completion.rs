//! Suggestions for the arguments of prompts and of the resource template.

use rmcp::ErrorData;
use rmcp::model::{CompleteRequestParams, CompleteResult};
use serde_json::json;

use crate::server::model;

const WORDS: [&str; 4] = ["paris", "park", "party", "1"];

pub(crate) fn complete(request: &CompleteRequestParams) -> Result<CompleteResult, ErrorData> {
    let begun = &request.argument.value;
    let values = WORDS.into_iter().filter(|word| word.starts_with(begun));
    let values: Vec<&str> = values.collect();
    let total = values.len();
    let completion = json!({"values": values, "total": total, "hasMore": false});
    model(json!({"resultType": "complete", "completion": completion}))
}
