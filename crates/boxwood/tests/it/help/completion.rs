//! Completion scripts.

use crate::support::command::run;

#[test]
fn every_shell_gets_a_script_that_knows_the_verbs() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = run(&["completion", shell]).ok();
        for verb in ["run", "exec", "doctor", "token", "skill"] {
            assert!(script.contains(verb), "{shell} does not know `{verb}`");
        }
    }
}
