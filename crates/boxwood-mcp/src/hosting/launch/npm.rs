//! The launchers of Node: `npx`, `npm exec`, and `npm` in a project.
//!
//! Comes in: their arguments. Goes out: which packages they would install, and what they would start.
//! Never here: an install.

use super::LaunchError;
use super::asked::Launcher;
use super::options::Known;
use super::package::NpmPackage;

/// A program that packages bring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NodeTool {
    pub(super) packages: Vec<NpmPackage>,
    pub(super) program: NodeProgram,
    pub(super) args: Vec<String>,
    /// Passed on to `npm install`.
    pub(super) options: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NodeProgram {
    /// What the first package says.
    OfPackage,
    Named(String),
    /// A line for the shell, with the programs of the packages at hand.
    Line(String),
}

const FLAGS: &[&str] = &[
    "-y",
    "--yes",
    "--no",
    "--no-install",
    "-q",
    "--quiet",
    "-s",
    "--silent",
    "-d",
    "--verbose",
    "--ignore-existing",
    "--prefer-online",
    "--prefer-offline",
    "--offline",
    "--legacy-peer-deps",
    "--force",
    "-f",
    "--no-audit",
    "--no-fund",
    "--no-update-notifier",
    "--ignore-scripts",
];
const VALUED: &[&str] = &[
    "-p",
    "--package",
    "-c",
    "--call",
    "--registry",
    "--cache",
    "--userconfig",
    "--loglevel",
    "--prefix",
    "--shell",
    "--script-shell",
    "--node-options",
];
const NPX: Known = Known {
    launcher: "npx",
    flags: FLAGS,
    valued: VALUED,
};
const NPM: Known = Known {
    launcher: "npm",
    flags: FLAGS,
    valued: VALUED,
};

pub(super) fn npx(args: &[String]) -> Result<NodeTool, LaunchError> {
    let found = NPX.read(args)?;
    tool("npx", &found.options, found.rest)
}

pub(super) fn npm(args: &[String]) -> Result<Launcher, LaunchError> {
    let before = NPM.read(args)?;
    match before.rest.split_first() {
        Some((verb, rest)) if verb == "exec" || verb == "x" => {
            let found = NPM.read(rest)?;
            let mut options = before.options;
            options.extend(found.options);
            // `npm exec PACKAGE -- ARGUMENTS`
            let rest: Vec<_> = match found.rest {
                [package, dashes, args @ ..] if dashes == "--" => {
                    [std::slice::from_ref(package), args].concat()
                }
                rest => rest.to_vec(),
            };
            tool("npm exec", &options, &rest).map(Launcher::NodeTool)
        }
        Some((verb, _)) if ["start", "run", "run-script"].contains(&verb.as_str()) => {
            Ok(Launcher::Npm {
                args: args.to_vec(),
            })
        }
        Some((verb, _)) => Err(LaunchError::Unsupported {
            launcher: format!("npm {verb}"),
            why: "it starts no server",
            instead: "use `npx PACKAGE`, `npm exec PACKAGE` or `npm start`",
        }),
        None => Err(LaunchError::NothingToRun {
            launcher: "npm".to_owned(),
        }),
    }
}

fn tool(
    launcher: &str,
    options: &[(String, Option<String>)],
    rest: &[String],
) -> Result<NodeTool, LaunchError> {
    let nothing = || LaunchError::NothingToRun {
        launcher: launcher.to_owned(),
    };
    let mut packages = Vec::new();
    let mut line = None;
    let mut passed = Vec::new();
    for (name, value) in options {
        match (name.as_str(), value) {
            ("-p" | "--package", Some(word)) => packages.push(NpmPackage::read(word)?),
            ("-c" | "--call", Some(text)) => line = Some(text.clone()),
            ("--registry", Some(address)) => passed.push(format!("--registry={address}")),
            ("--legacy-peer-deps" | "--force" | "--ignore-scripts", _) => {
                passed.push(name.clone());
            }
            // They decide what is installed or how it runs, and would not be kept.
            ("--userconfig" | "--node-options" | "--offline", _) => {
                return Err(LaunchError::UnknownOption {
                    launcher: launcher.to_owned(),
                    option: name.clone(),
                });
            }
            _ => {}
        }
    }
    let (program, args) = match (line, rest.split_first()) {
        (Some(line), _) if packages.is_empty() => {
            return Err(LaunchError::BadPackage {
                installer: "npm",
                word: line,
                why: "a line for the shell needs --package as well",
            });
        }
        (Some(line), _) => (NodeProgram::Line(line), Vec::new()),
        (None, None) => return Err(nothing()),
        (None, Some((asked, args))) if packages.is_empty() => {
            packages.push(NpmPackage::read(asked)?);
            (NodeProgram::OfPackage, args.to_vec())
        }
        (None, Some((asked, args))) => {
            if asked.contains('/') {
                return Err(LaunchError::BadPackage {
                    installer: "npm",
                    word: asked.clone(),
                    why: "a program of a package has no slash in its name",
                });
            }
            (NodeProgram::Named(asked.clone()), args.to_vec())
        }
    };
    Ok(NodeTool {
        packages,
        program,
        args,
        options: passed,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[track_caller]
    fn check(tool: &NodeTool, packages: &str, program: &NodeProgram, args: &str) {
        let read: Vec<_> = tool.packages.iter().map(NpmPackage::word).collect();
        assert_eq!(read, words(packages));
        assert_eq!(&tool.program, program);
        assert_eq!(tool.args, words(args));
    }

    #[test]
    fn npx_runs_the_package_it_is_given() {
        let named = |name: &str| NodeProgram::Named(name.to_owned());
        let read = |line: &str| npx(&words(line)).expect("it is well formed");
        check(
            &read("-y @scope/server@1.2 /data --verbose"),
            "@scope/server@1.2",
            &NodeProgram::OfPackage,
            "/data --verbose",
        );
        check(
            &read("-p a --package=b@2 tool -x"),
            "a b@2",
            &named("tool"),
            "-x",
        );
        let line = read("-y --package=a -c tool");
        check(&line, "a", &NodeProgram::Line("tool".to_owned()), "");
        assert_eq!(
            read("--registry=https://x --legacy-peer-deps a").options,
            words("--registry=https://x --legacy-peer-deps")
        );
        npx(&words("-c tool")).expect_err("nothing to install");
        for line in ["--offline a", "--userconfig=x a", "--node-options x a"] {
            npx(&words(line)).expect_err(line);
        }
        npx(&words("-p a ../x")).expect_err("a program has no slash");
    }

    #[test]
    fn npm_exec_is_npx_and_start_is_a_project() {
        for line in [
            "exec -y a -- --x 1",
            "exec --yes -- a --x 1",
            "x a -- --x 1",
            "--yes exec a --x 1",
        ] {
            let Launcher::NodeTool(tool) = npm(&words(line)).expect("it is well formed") else {
                panic!("{line}");
            };
            check(&tool, "a", &NodeProgram::OfPackage, "--x 1");
        }
        let start = npm(&words("--prefix /p run serve -- --x")).expect("it is well formed");
        assert_eq!(
            start,
            Launcher::Npm {
                args: words("--prefix /p run serve -- --x")
            }
        );
        npm(&words("install a")).expect_err("it starts nothing");
    }
}
