//! Help texts: `tool` and its actions. A change here is a change of what people read.

use crate::support::command::help;

/// What only these have; the global options stand in the other help tests.
fn own(words: &[&str]) -> String {
    let text = help(words);
    let (own, rest) = text.split_once("Global options:").expect("global options");
    let (_, examples) = rest.split_once("Examples:").expect("examples");
    format!("{own}Examples:{examples}")
}

#[test]
fn the_verb() {
    insta::assert_snapshot!(own(&["tool"]), @r#"
    Call the tools that agents have

    The same tools that a platform reaches over HTTP and any agent over MCP. A tool acts in the box of a
    conversation: `--query` says which conversation is meant.

    Usage: boxwood tool [OPTIONS] <COMMAND>

    Commands:
      ls    List tools [alias: list]
      call  Call a tool

    Options:
      -h, --help
              Print help (see a summary with '-h')

    Examples:
      boxwood tool ls
      boxwood tool call exec '{"command": "python3 -c \"print(6 * 7)\""}'
      boxwood tool call read '{"path": "/workspace/out.txt"}' -o json
      boxwood tool call grep '{"pattern": "TODO"}' --query '{"launcher_id": "room-1"}'
    "#);
}

#[test]
fn ls() {
    insta::assert_snapshot!(own(&["tool", "ls"]), @r#"
    List tools

    Where they cannot be used now, says why, and ends with 1.

    Usage: boxwood tool ls [OPTIONS]

    Options:
      -q, --quiet
              Names only, one per line

          --openai
              The list that OpenAI's function calling takes, as JSON

      -h, --help
              Print help (see a summary with '-h')

    Examples:
      boxwood tool ls
      boxwood tool ls -q                    Names only, one per line
      boxwood tool ls -o json               With their schemas
      boxwood tool ls --openai              As OpenAI's function calling takes them, to paste
    "#);
}

#[test]
fn call() {
    insta::assert_snapshot!(own(&["tool", "call"]), @r#"
    Call a tool

    Ends with 0 when the operation succeeded, and with 1 when it did not or was refused. Interrupting it
    kills the command that the tool runs.

    Usage: boxwood tool call [OPTIONS] <NAME> [ARGUMENTS]

    Arguments:
      <NAME>
              Name of the tool; `boxwood tool ls` shows them

      [ARGUMENTS]
              The arguments as a JSON object; `-` reads it from standard input

              [default: {}]

    Options:
          --query <JSON>
              The conversation, as a JSON object with `query_id`, `launcher_type`, `launcher_id`,
              `sender_id`, `variables` and `pipeline`, each of which may be left out

              [default: {}]

      -h, --help
              Print help (see a summary with '-h')

    Examples:
      boxwood tool call exec '{"command": "make test", "timeout_sec": 60}'
      boxwood tool call write '{"path": "/workspace/a.txt", "content": "hello"}'
      boxwood tool call exec - < arguments.json
      boxwood tool call exec '{"command": "pwd"}' --query '{"launcher_id": "room-1"}'
      boxwood tool call exec '{"command": "pwd"}' -o json | jq -r .result.stdout
    "#);
}
