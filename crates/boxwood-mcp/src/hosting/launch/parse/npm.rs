//! Parses `npx`, and `npm` in a project.

use super::command::Launcher;
use super::options::OptionSet;
use super::package::NpmPackage;
use crate::hosting::launch::LaunchError;

/// A program from npm packages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeTool {
    pub(crate) packages: Vec<NpmPackage>,
    /// `None` for the program declared by the first package.
    pub(crate) program: Option<String>,
    pub(crate) args: Vec<String>,
    /// Passed to `npm install`.
    pub(crate) options: Vec<String>,
}

const NPX: OptionSet = OptionSet {
    launcher: "npx",
    flags: &[
        "-y --yes -q --quiet --silent --verbose --no-audit --no-fund",
        "--ignore-existing --prefer-online --prefer-offline",
        "--legacy-peer-deps --force --ignore-scripts",
    ],
    valued: &["-p --package --registry --cache --loglevel"],
};

pub(crate) fn npx(args: &[String]) -> Result<NodeTool, LaunchError> {
    let parsed = NPX.read(args)?;
    let mut packages = Vec::new();
    let mut options = Vec::new();
    for (name, value) in &parsed.options {
        match (name.as_str(), value) {
            ("-p" | "--package", Some(word)) => packages.push(NpmPackage::read(word)?),
            ("--registry", Some(address)) => options.push(format!("--registry={address}")),
            ("--legacy-peer-deps" | "--force" | "--ignore-scripts", _) => {
                options.push(name.clone());
            }
            _ => {}
        }
    }
    let (first, args) = parsed.rest.split_first().ok_or(LaunchError::NothingToRun {
        launcher: "npx".to_owned(),
    })?;
    let program = if packages.is_empty() {
        packages.push(NpmPackage::read(first)?);
        None
    } else if first.contains('/') {
        return Err(LaunchError::BadPackage {
            installer: "npm",
            word: first.clone(),
            why: "a program name must not contain a slash",
        });
    } else {
        Some(first.clone())
    };
    Ok(NodeTool {
        packages,
        program,
        args: args.to_vec(),
        options,
    })
}

/// `npm start` and `npm run`, which run a script of a project. Options before them are those of npm.
pub(crate) fn npm(args: &[String]) -> Result<Launcher, LaunchError> {
    const SUBCOMMANDS: [&str; 3] = ["start", "run", "run-script"];
    if args.iter().any(|word| SUBCOMMANDS.contains(&word.as_str())) {
        return Ok(Launcher::NodeRun {
            program: "npm",
            args: args.to_vec(),
        });
    }
    Err(LaunchError::Unsupported {
        launcher: format!("npm {}", args.first().map_or("", String::as_str)),
        why: "it does not start a server",
        instead: "use `npx PACKAGE`, or `npm start` in a project",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[track_caller]
    fn check(line: &str, packages: &str, program: Option<&str>, args: &str) {
        let tool = npx(&words(line)).expect("it is well formed");
        let read: Vec<_> = tool.packages.iter().map(NpmPackage::word).collect();
        assert_eq!(read, words(packages));
        assert_eq!(tool.program.as_deref(), program);
        assert_eq!(tool.args, words(args));
    }

    #[test]
    fn npx_runs_its_package() {
        check(
            "-y @scope/server@1.2 /data --verbose",
            "@scope/server@1.2",
            None,
            "/data --verbose",
        );
        check("-p a --package=b@2 tool -x", "a b@2", Some("tool"), "-x");
        let line = words("--registry=https://x --legacy-peer-deps a");
        assert_eq!(
            npx(&line).expect("it is well formed").options,
            words("--registry=https://x --legacy-peer-deps")
        );
        for line in [
            "--offline a",
            "--userconfig=x a",
            "--node-options x a",
            "-p a -c tool",
        ] {
            let error = npx(&words(line)).expect_err(line);
            assert!(
                matches!(error, LaunchError::UnknownOption { .. }),
                "{error}"
            );
        }
        npx(&words("-p a ../x")).expect_err("a program has no slash");
    }

    #[test]
    fn npm_runs_a_script_of_a_project() {
        let args = words("--prefix /p run serve -- --x");
        let start = npm(&args).expect("it is well formed");
        let program = "npm";
        assert_eq!(start, Launcher::NodeRun { program, args });
        for line in ["install a", "exec a", ""] {
            let error = npm(&words(line)).expect_err("it starts nothing");
            assert!(
                error.hint().is_some_and(|hint| hint.contains("npx")),
                "{error}"
            );
        }
    }
}
