//! Help texts: `tool` and its actions. A change here changes what users read.

use crate::support::command::help;

/// The help without the global options, which other tests compare.
fn own_help(args: &[&str]) -> String {
    let text = help(args);
    let (own_help, rest) = text.split_once("Global options:").expect("global options");
    let (_, examples) = rest.split_once("Examples:").expect("examples");
    format!("{own_help}Examples:{examples}")
}

#[test]
fn the_verb() {
    insta::assert_snapshot!(own_help(&["tool"]), @r#"
    List and call the agent tools

    These are the tools that platforms call over HTTP and agents over MCP. A tool runs in the box of a
    conversation, which `--query` selects.

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
    insta::assert_snapshot!(own_help(&["tool", "ls"]), @r"
    List tools

    If the tools cannot be used now, prints the reason and exits with 1.

    Usage: boxwood tool ls [OPTIONS]

    Options:
      -q, --quiet
              Print only names, one per line

          --openai
              Print the list for OpenAI's function calling, as JSON

      -h, --help
              Print help (see a summary with '-h')

    Examples:
      boxwood tool ls
      boxwood tool ls -q                    Only names
      boxwood tool ls -o json               With schemas
      boxwood tool ls --openai              In the format of OpenAI's function calling
    ");
}

#[test]
fn call() {
    insta::assert_snapshot!(own_help(&["tool", "call"]), @r#"
    Call a tool

    Exits with 0 if the operation succeeded, and with 1 if it failed or was refused. Ctrl-C cancels the
    call and kills its command.

    Usage: boxwood tool call [OPTIONS] <NAME> [ARGUMENTS]

    Arguments:
      <NAME>
              Name of the tool; `boxwood tool ls` lists them

      [ARGUMENTS]
              Arguments as a JSON object; `-` reads them from stdin

              [default: {}]

    Options:
          --query <JSON>
              Conversation, as a JSON object with the optional fields `query_id`, `launcher_type`,
              `launcher_id`, `sender_id`, `variables` and `pipeline`

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
