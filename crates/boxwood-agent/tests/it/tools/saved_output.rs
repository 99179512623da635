//! Output that was too long to show can be read in the box for a while.

use boxwood_api::{ErrorCode, ReadTextRequest};
use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::double::{BoxRequest, Double, Step, call, failure};

async fn long(
    boxes: &Double,
    agent: &boxwood_agent::Agent,
    steps: Vec<Step>,
) -> Map<String, Value> {
    boxes.next_command(steps);
    call(agent, "exec", json!({"command": "x"}), json!({}))
        .await
        .expect("it runs")
}

fn out(size: usize) -> Step {
    Step::Out(Bytes::from(vec![b'o'; size]))
}

fn err(size: usize) -> Step {
    Step::Err(Bytes::from(vec![b'e'; size]))
}

#[tokio::test]
async fn a_truncated_stream_is_saved_in_the_box() {
    let boxes = Double::default();
    let agent = boxes.agent();
    let result = long(&boxes, &agent, vec![out(9_000), err(10)]).await;
    assert_eq!(result["stdout_file"], "/tmp/.boxwood/output/1.stdout");
    assert!(!result.contains_key("stderr_file"));
    assert_eq!(
        result["notices"],
        json!([
            "the whole output is in /tmp/.boxwood/output/1.stdout; read it with the read tool, \
             offset and limit"
        ])
    );
    let kept = boxes.world().files["/tmp/.boxwood/output/1.stdout"].clone();
    assert_eq!(kept, vec![b'o'; 9_000]);

    let arguments = json!({"path": "/tmp/.boxwood/output/1.stdout", "offset": 5, "limit": 2});
    let read = call(&agent, "read", arguments, json!({}))
        .await
        .expect("it reads");
    assert_eq!(read["ok"], true);
    let request = ReadTextRequest {
        path: "/tmp/.boxwood/output/1.stdout".to_owned(),
        offset: Some(5),
        limit: Some(2),
        max_bytes: Some(256 * 1024),
    };
    assert!(boxes.requests().contains(&BoxRequest::Read(request)));

    let result = long(&boxes, &agent, vec![out(5_000), err(5_000)]).await;
    assert_eq!(result["stdout_file"], "/tmp/.boxwood/output/2.stdout");
    assert_eq!(result["stderr_file"], "/tmp/.boxwood/output/2.stderr");
}

#[tokio::test]
async fn short_output_is_not_saved() {
    let boxes = Double::default();
    let agent = boxes.agent();
    long(&boxes, &agent, vec![out(4_000), err(4_000)]).await;
    assert!(boxes.world().files.is_empty());
    let touched =
        |request: &BoxRequest| matches!(request, BoxRequest::List(_) | BoxRequest::WriteFile(_));
    assert!(!boxes.requests().iter().any(touched));
}

#[tokio::test]
async fn only_the_newest_outputs_are_kept() {
    let boxes = Double::default();
    let agent = boxes.agent();
    let foreign = "/tmp/.boxwood/output/notes.txt".to_owned();
    boxes
        .world()
        .files
        .insert(foreign.clone(), b"mine".to_vec());
    for _ in 0..20 {
        long(&boxes, &agent, vec![out(5_000), err(5_000)]).await;
    }
    let mut expected = vec![foreign];
    expected.extend((5..=20).flat_map(|number| {
        ["stderr", "stdout"].map(|stream| format!("/tmp/.boxwood/output/{number}.{stream}"))
    }));
    expected.sort();
    let kept: Vec<String> = boxes.world().files.keys().cloned().collect();
    assert_eq!(kept, expected);
}

#[tokio::test]
async fn old_outputs_are_removed_when_new_ones_are_large() {
    let boxes = Double::default();
    let agent = boxes.agent();
    for _ in 0..6 {
        let steps = (0..9).map(|_| out(1 << 20)).collect();
        let result = long(&boxes, &agent, steps).await;
        let notice = result["notices"][0].as_str().expect("a notice");
        assert!(
            notice.starts_with("the first 8 MiB of the output are in"),
            "{notice}"
        );
    }
    let world = boxes.world();
    let kept: Vec<&str> = world.files.keys().map(String::as_str).collect();
    let expected: Vec<String> = (5..=6)
        .map(|number| format!("/tmp/.boxwood/output/{number}.stdout"))
        .collect();
    assert_eq!(kept, expected);
    assert!(world.files.values().all(|file| file.len() == 8 << 20));
}

#[tokio::test]
async fn one_command_has_the_same_limit_as_all_together() {
    let boxes = Double::default();
    let agent = boxes.agent();
    for _ in 0..2 {
        let steps = (0..9).flat_map(|_| [out(1 << 20), err(1 << 20)]).collect();
        long(&boxes, &agent, steps).await;
    }
    let kept: usize = boxes.world().files.values().map(Vec::len).sum();
    assert_eq!(kept, 16 << 20);
}

#[tokio::test]
async fn a_new_agent_continues_the_numbers_of_the_box() {
    let boxes = Double::default();
    long(&boxes, &boxes.agent(), vec![out(5_000)]).await;
    let result = long(&boxes, &boxes.agent(), vec![out(6_000)]).await;
    assert_eq!(result["stdout_file"], "/tmp/.boxwood/output/2.stdout");
    // A number that cannot be incremented is ignored, because the box can write any file there.
    let odd = "/tmp/.boxwood/output/18446744073709551615.stdout".to_owned();
    boxes.world().files.insert(odd, Vec::new());
    let result = long(&boxes, &boxes.agent(), vec![out(6_000)]).await;
    assert_eq!(result["stdout_file"], "/tmp/.boxwood/output/3.stdout");
}

#[tokio::test]
async fn a_large_number_in_a_name_does_not_disable_the_limit() {
    let boxes = Double::default();
    let agent = boxes.agent();
    let large = format!("/tmp/.boxwood/output/{}.stdout", 1_u64 << 40);
    boxes.world().files.insert(large, Vec::new());
    for _ in 0..40 {
        long(&boxes, &agent, vec![out(5_000)]).await;
    }
    assert_eq!(boxes.world().files.len(), 16);
}

#[tokio::test]
async fn a_result_is_returned_if_its_output_cannot_be_saved() {
    let boxes = Double::default();
    let full = failure(ErrorCode::Capacity, "no space is left");
    boxes.world().failing.insert("write_file", full);
    let result = long(&boxes, &boxes.agent(), vec![out(9_000)]).await;
    assert_eq!(
        (&result["ok"], &result["stdout_truncated"]),
        (&json!(true), &json!(true))
    );
    assert!(!result.contains_key("stdout_file"));
    assert_eq!(
        result["notices"],
        json!(["the whole output could not be kept: no space is left"])
    );
}
