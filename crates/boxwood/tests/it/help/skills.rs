//! Help texts: `skill` and its actions. A change here changes what users read.

use crate::support::command::help;

#[test]
fn the_verb() {
    insta::assert_snapshot!(help(&["skill"]), @r"
    Manage skills

    A skill is a directory with a `SKILL.md`: instructions for an agent, and the scripts and files that
    they refer to. The daemon keeps skills in its store. `--skill NAME` mounts a skill in a box,
    read-only, under `/workspace/.skills/NAME`.

    Usage: boxwood skill [OPTIONS] <COMMAND>

    Commands:
      ls        List skills [alias: list]
      show      Show a skill with its instructions
      add       Add skills to the daemon's store
      rm        Remove skills
      files     List the files of a skill
      cat       Print a file of a skill
      edit      Edit a file of a skill
      export    Export a skill as a zip archive
      validate  Check a skill against the Agent Skills rules

    Options:
      -h, --help
              Print help (see a summary with '-h')

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
      boxwood skill add ./pdf                       Add a directory with a SKILL.md to the store
      boxwood skill add skills.zip --all            Add all skills of an archive
      boxwood skill ls
      boxwood skill show pdf
      boxwood skill edit pdf SKILL.md               Edit a file in your editor
      boxwood exec build --skill pdf -- ls /workspace/.skills/pdf
      boxwood skill rm pdf

    `boxwood skill ACTION --help` has examples for every action.
    ");
}

#[test]
fn ls() {
    insta::assert_snapshot!(help(&["skill", "ls"]), @r"
    List skills

    The most recently changed skill is listed first. Packages that cannot be read are reported on
    stderr.

    Usage: boxwood skill ls [OPTIONS]

    Options:
      -q, --quiet
              Print only names, one per line

      -h, --help
              Print help (see a summary with '-h')

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
      boxwood skill ls
      boxwood skill ls -q                   Only names
      boxwood skill ls -o json              All details, with warnings and packages that cannot be read
    ");
}

#[test]
fn show() {
    insta::assert_snapshot!(help(&["skill", "show"]), @r"
    Show a skill with its instructions

    Also lists where it does not follow the Agent Skills rules. The skill can be used nevertheless.

    Usage: boxwood skill show [OPTIONS] <NAME>

    Arguments:
      <NAME>
              Name of the skill

    Options:
      -h, --help
              Print help (see a summary with '-h')

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
      boxwood skill show pdf
      boxwood skill show pdf -o json | jq -r .instructions
    ");
}

#[test]
fn add() {
    insta::assert_snapshot!(help(&["skill", "add"]), @r"
    Add skills to the daemon's store

    Adds the skills of a directory or a zip archive and prints their names. A directory is packed and
    sent to the daemon, which may run on another machine; symbolic links and `.git` are skipped. If
    there are several skills, select which to add. If one of them already exists, none is added.

    Usage: boxwood skill add [OPTIONS] <PATH>

    Arguments:
      <PATH>
              Directory or zip archive; `-` for an archive on stdin

    Options:
          --name <NAME>
              Name of the skill, instead of the one in its SKILL.md

          --select <SUBDIR>
              Add only the skill in this directory below PATH; repeatable

          --all
              Add all skills

      -n, --dry-run
              List the skills without adding them

      -h, --help
              Print help (see a summary with '-h')

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
      boxwood skill add ./pdf                       Add a directory with a SKILL.md
      boxwood skill add pdf.zip                     Add an archive of such a directory
      boxwood skill add ./skills --dry-run          List the skills in a directory
      boxwood skill add ./skills --select pdf --select office/csv
      boxwood skill add ./skills --all
      boxwood skill add ./pdf --name pdf-next       Add it under another name
      curl -sL https://example.org/pdf.zip | boxwood skill add - --name pdf
    ");
}

#[test]
fn rm() {
    insta::assert_snapshot!(help(&["skill", "rm"]), @r"
    Remove skills

    Removes the package with all its files. Boxes that have it mounted see an empty directory.

    Usage: boxwood skill rm [OPTIONS] <NAME>...

    Arguments:
      <NAME>...
              Names of the skills

    Options:
      -f, --force
              Ignore skills that do not exist

      -h, --help
              Print help (see a summary with '-h')

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
      boxwood skill rm pdf
      boxwood skill rm -f pdf csv           Ignore skills that do not exist
    ");
}

#[test]
fn files() {
    insta::assert_snapshot!(help(&["skill", "files"]), @r"
    List the files of a skill

    Lists one directory of the package. Names of directories end with `/`.

    Usage: boxwood skill files [OPTIONS] <NAME> [PATH]

    Arguments:
      <NAME>
              Name of the skill

      [PATH]
              Directory of the package

              [default: .]

    Options:
      -a, --all
              Include entries whose name begins with a dot

      -h, --help
              Print help (see a summary with '-h')

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
      boxwood skill files pdf
      boxwood skill files pdf scripts
      boxwood skill files -a pdf            Include hidden files
    ");
}

#[test]
fn cat() {
    insta::assert_snapshot!(help(&["skill", "cat"]), @r"
    Print a file of a skill

    Writes the content to stdout unchanged.

    Usage: boxwood skill cat [OPTIONS] <NAME> <FILE>

    Arguments:
      <NAME>
              Name of the skill

      <FILE>
              Path of the file in the package

    Options:
      -h, --help
              Print help (see a summary with '-h')

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
      boxwood skill cat pdf SKILL.md
      boxwood skill cat pdf assets/logo.png > logo.png
    ");
}

#[test]
fn edit() {
    insta::assert_snapshot!(help(&["skill", "edit"]), @r"
    Edit a file of a skill

    Opens the file in your editor and uploads it if you have changed it. The upload fails if the file
    was changed in the store meanwhile.

    Usage: boxwood skill edit [OPTIONS] <NAME> <FILE> [FROM]

    Arguments:
      <NAME>
              Name of the skill

      <FILE>
              Path of the file in the package

      [FROM]
              File with the new contents, or `-` for stdin [default: open an editor]

    Options:
      -h, --help
              Print help (see a summary with '-h')

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
      boxwood skill edit pdf SKILL.md                   Open a file in $VISUAL, $EDITOR or vi
      boxwood skill edit pdf scripts/fill.py fill.py    Replace it with the contents of a local file
      generate | boxwood skill edit pdf data.json -     Replace it with the contents of stdin

    A file that does not exist is created, with its parent directories.
    ");
}

#[test]
fn export() {
    insta::assert_snapshot!(help(&["skill", "export"]), @r"
    Export a skill as a zip archive

    The archive can be imported with `boxwood skill add`. The file is created when the download is
    complete.

    Usage: boxwood skill export [OPTIONS] <NAME> [FILE]

    Arguments:
      <NAME>
              Name of the skill

      [FILE]
              File to write; `-` or none for stdout

    Options:
      -h, --help
              Print help (see a summary with '-h')

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
      boxwood skill export pdf pdf.zip
      boxwood skill export pdf > pdf.zip
      boxwood skill export pdf - | ssh other boxwood skill add - --name pdf
    ");
}

#[test]
fn validate() {
    insta::assert_snapshot!(help(&["skill", "validate"]), @r"
    Check a skill against the Agent Skills rules

    Skills with errors cannot be added to the store. Warnings are other violations of the rules, such as
    in the name, the description or unknown fields. A path (`./pdf`, `pdf.zip`, `/srv/skills/pdf`) is
    checked on this machine; any other word is the name of a skill in the store.

    Usage: boxwood skill validate [OPTIONS] <PATH|NAME>

    Arguments:
      <PATH|NAME>
              Directory, zip archive, or name of a skill

    Options:
          --strict
              Fail if there are warnings

      -h, --help
              Print help (see a summary with '-h')

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
      boxwood skill validate ./pdf                  Check a directory; no daemon needed
      boxwood skill validate pdf.zip                Check all skills of an archive
      boxwood skill validate pdf                    Check a skill of the daemon's store
      boxwood skill validate --strict ./pdf         Fail on warnings too, for CI

    Exit codes: 0 the skill can be used; 1 it cannot, or with --strict it has warnings.
    ");
}
