//! Help texts: the whole. A change here is a change of what people read.

use crate::support::command::{help, run};

#[test]
fn the_whole() {
    insta::assert_snapshot!(help(&[]), @r#"
    A sandbox runtime for AI agents: boxes in which untrusted commands run, under limits that hold, on
    one ordinary Linux machine.

    Usage: boxwood [OPTIONS] <COMMAND>

    Commands:
      run         Run a command in a new box, without a daemon
      exec        Run a command in a session
      sh          Open a shell in a session
      create      Create a session
      ls          List sessions [alias: list]
      ps          List what runs in a session
      inspect     Show everything about a session, a managed process or a command
      cp          Copy files between this machine and a session
      start       Start a managed process in a session
      attach      Connect to the stdin and stdout of a managed process
      logs        Show what a managed process wrote lately
      kill        Send a signal to a managed process, or kill a command
      stop        Stop managed processes
      rm          Remove sessions
      events      Watch what happens
      profiles    List profiles
      skill       Manage skills
      tool        Call the tools that agents have
      image       Manage images
      mcp         Run MCP servers in boxes
      mcp-server  Serve the agent's tools to an MCP client
      serve       Run the daemon
      doctor      Say what keeps boxes apart here, and what is missing
      token       Manage access tokens
      completion  Print a completion script for a shell

    Options:
      -h, --help
              Print help (see a summary with '-h')

      -V, --version
              Print version

    Global options:
      -o, --output <FORMAT>
              How to print the answer

              Possible values:
              - table: For people
              - json:  For programs

              [env: BOXWOOD_OUTPUT]
              [default: table]

          --url <URL>
              Address of the daemon: `http://HOST:PORT`, `https://HOST` or `unix:///PATH`

              [env: BOXWOOD_URL]

    Examples:
      boxwood run -- python3 -c 'print(6 * 7)'      One command in a fresh box, no daemon needed
      boxwood serve                                 The daemon, for agents and for the verbs below
      boxwood exec build -- make                    A command in the session `build`, made when missing
      boxwood sh build                              A shell in it
      boxwood cp build:/workspace/out.txt .         A file out of it
      boxwood rm build                              The end of it

    Finding the daemon:
      Client verbs use --url or BOXWOOD_URL; else the socket in the run directory when a daemon listens
      there; else http://127.0.0.1:5410. The daemon's own user and root need no token on the same
      machine; other users set BOXWOOD_TOKEN.

    Exit codes:
      0    success
      1    an error, told on stderr
      2    the command line was not understood
      124  run, exec: the command was stopped by its timeout
      125  run, exec, sh: Boxwood failed, not the command
      Otherwise run, exec and sh end with the command's own code, 128+n when signal n ended it.
    "#);
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
        assert!(short.contains("Examples:"), "`{verb} -h` teaches nothing");
        assert!(short.len() < long.len(), "`{verb}` has only one help");
        count += 1;
    }
    assert_eq!(count, 25);
}
