//! Help texts: the overview. A change here changes what users read.

use crate::support::command::{help, run};

#[test]
fn the_whole() {
    insta::assert_snapshot!(help(&[]), @r"
    A sandbox runtime for AI agents: runs untrusted commands in isolated boxes with enforced limits, on
    one Linux machine.

    Usage: boxwood [OPTIONS] <COMMAND>

    Commands:
      run         Run a command in a new box, without a daemon
      exec        Run a command in a session
      sh          Open a shell in a session
      create      Create a session
      ls          List sessions [alias: list]
      ps          List the processes and commands of a session
      inspect     Show everything about a session, a managed process or a command
      cp          Copy files between this machine and a session
      start       Start a managed process in a session
      attach      Connect to stdin and stdout of a managed process
      logs        Show the recent output of a managed process
      kill        Send a signal to a managed process, or kill a command
      stop        Stop managed processes
      rm          Remove sessions
      events      Watch events of the daemon
      profiles    List profiles
      skill       Manage skills
      tool        List and call the agent tools
      image       Manage images
      mcp         Run MCP servers in boxes
      mcp-server  Serve the agent tools to an MCP client
      serve       Run the daemon
      doctor      Check which isolation mechanisms and backends work
      token       Manage access tokens
      completion  Print a completion script for a shell

    Options:
      -h, --help
              Print help (see a summary with '-h')

      -V, --version
              Print version

    Global options:
      -o, --output <FORMAT>
              Output format

              Possible values:
              - table: Tables and text
              - json:  JSON

              [env: BOXWOOD_OUTPUT]
              [default: table]

          --url <URL>
              Address of the daemon: `http://HOST:PORT`, `https://HOST` or `unix:///PATH`

              [env: BOXWOOD_URL]

    Examples:
      boxwood run -- python3 -c 'print(6 * 7)'      Run one command in a new box, without a daemon
      boxwood serve                                 Start the daemon, for agents and the commands below
      boxwood exec build -- make                    Run a command in the session `build`
      boxwood sh build                              Open a shell in it
      boxwood cp build:/workspace/out.txt .         Copy a file from it
      boxwood rm build                              Remove it

    Finding the daemon:
      Commands connect to --url or BOXWOOD_URL; without them to the socket in the run directory if a
      daemon listens there, and otherwise to http://127.0.0.1:5410. The daemon's own user and root need
      no token on the same machine; other users set BOXWOOD_TOKEN.

    Exit codes:
      0    success
      1    an error, described on stderr
      2    invalid arguments
      124  run, exec, sh: the command was stopped by its timeout
      125  run, exec, sh: Boxwood failed, not the command
      Otherwise run, exec and sh return the exit code of the command, or 128+n if signal n ended it.
    ");
}

#[test]
fn every_verb_has_a_short_help_of_its_own() {
    let whole = help(&[]);
    let verbs = whole
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_whitespace().next());
    let mut count = 0;
    for verb in verbs {
        let short = run(&[verb, "-h"]).ok();
        let long = run(&[verb, "--help"]).ok();
        assert!(short.contains("Examples:"), "`{verb} -h` has no examples");
        assert!(short.len() < long.len(), "`{verb}` has only one help");
        count += 1;
    }
    assert_eq!(count, 25);
}
