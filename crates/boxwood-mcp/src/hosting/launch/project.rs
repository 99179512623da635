//! What a directory says about the project in it.
//!
//! Comes in: a directory of the host. Goes out: what would have to be installed for it. Never here: an
//! install. What the files say is never quoted in an error: nobody has judged yet whether the directory
//! may be looked into.

use std::fs;
use std::path::Path;

use serde_json::Value;
use toml::Table;

use super::LaunchError;
use super::package::plain;
use super::reading::read_text;

/// No manifest is longer.
const LONGEST_MANIFEST: u64 = 4 * 1024 * 1024;
/// How far into a script its own metadata is looked for.
const LONGEST_SCRIPT: u64 = 1024 * 1024;
/// More dependencies than this belong into a lock.
const MOST_DEPENDENCIES: usize = 1000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PythonKind {
    /// `requirements.txt`, and nothing to install.
    Requirements,
    /// `pyproject.toml` that lists what is needed and builds nothing.
    Declared,
    /// It is installed itself.
    Package,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PythonProject {
    pub(super) kind: PythonKind,
    pub(super) requires_python: Option<String>,
    /// Of a `Declared` one.
    pub(super) dependencies: Vec<String>,
    pub(super) has_lock: bool,
}

impl PythonProject {
    pub(super) fn read(directory: &Path, extras: &[String]) -> Result<Option<Self>, LaunchError> {
        let has = |name: &str| directory.join(name).is_file();
        let has_lock = has("uv.lock");
        let pyproject = pyproject(directory)?;
        let of = |kind, requires_python, dependencies| Self {
            kind,
            requires_python,
            dependencies,
            has_lock,
        };
        if let Some(pyproject) = &pyproject
            && let Some(kind) = pyproject_kind(pyproject)
        {
            let project = table(pyproject, "project");
            let requires = project
                .and_then(|project| project.get("requires-python"))
                .and_then(toml::Value::as_str)
                .map(str::to_owned);
            let builds = has("setup.py") || has("setup.cfg");
            let declared = declared(project, extras);
            check_names(
                &directory.join("pyproject.toml"),
                declared.as_deref().unwrap_or_default(),
            )?;
            return Ok(Some(match declared {
                Some(dependencies) if kind == PythonKind::Declared && !builds => {
                    of(PythonKind::Declared, requires, dependencies)
                }
                _ => of(PythonKind::Package, requires, Vec::new()),
            }));
        }
        if has("setup.py") || has("setup.cfg") {
            return Ok(Some(of(PythonKind::Package, None, Vec::new())));
        }
        Ok(has("requirements.txt").then(|| of(PythonKind::Requirements, None, Vec::new())))
    }
}

fn table<'a>(of: &'a Table, name: &str) -> Option<&'a Table> {
    of.get(name).and_then(toml::Value::as_table)
}

fn pyproject(directory: &Path) -> Result<Option<Table>, LaunchError> {
    let path = directory.join("pyproject.toml");
    let text = read_text(&path, LONGEST_MANIFEST).map_err(|source| LaunchError::Manifest {
        path: path.clone(),
        source,
    })?;
    text.map(|text| {
        text.parse::<Table>()
            .map_err(|_| bad(&path, "it is no TOML"))
    })
    .transpose()
}

/// `None` when the file only holds settings of tools.
fn pyproject_kind(pyproject: &Table) -> Option<PythonKind> {
    let tools = table(pyproject, "tool");
    let has_tool = |name: &str| tools.is_some_and(|tools| tools.contains_key(name));
    let is_package = tools
        .and_then(|tools| table(tools, "uv"))
        .and_then(|uv| uv.get("package"))
        .and_then(toml::Value::as_bool);
    match is_package {
        Some(true) => Some(PythonKind::Package),
        Some(false) => Some(PythonKind::Declared),
        None if pyproject.contains_key("build-system") || has_tool("poetry") => {
            Some(PythonKind::Package)
        }
        None => pyproject
            .contains_key("project")
            .then_some(PythonKind::Declared),
    }
}

/// The dependencies, when they are all written down.
fn declared(project: Option<&Table>, extras: &[String]) -> Option<Vec<String>> {
    let project = project?;
    let is_dynamic = project
        .get("dynamic")
        .and_then(toml::Value::as_array)
        .is_some_and(|names| {
            names
                .iter()
                .any(|name| name.as_str() == Some("dependencies"))
        });
    if is_dynamic {
        return None;
    }
    let mut all = project
        .get("dependencies")
        .map_or(Some(Vec::new()), texts)?;
    let optional = table(project, "optional-dependencies");
    for extra in extras {
        all.extend(texts(optional?.get(extra)?)?);
    }
    (all.len() <= MOST_DEPENDENCIES).then_some(all)
}

/// Nothing that an installer would take for an option. What it says stays untold.
fn check_names(path: &Path, dependencies: &[String]) -> Result<(), LaunchError> {
    if dependencies.iter().any(|word| plain(word).is_err()) {
        return Err(bad(
            path,
            "one of its `dependencies` is no name of a package",
        ));
    }
    Ok(())
}

fn texts(value: &toml::Value) -> Option<Vec<String>> {
    value
        .as_array()?
        .iter()
        .map(|text| text.as_str().map(str::to_owned))
        .collect()
}

fn bad(path: &Path, message: &str) -> LaunchError {
    LaunchError::BadManifest {
        path: path.to_owned(),
        message: message.to_owned(),
    }
}

/// What a script says in its first comment that it needs (PEP 723).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ScriptNeeds {
    pub(super) dependencies: Vec<String>,
    pub(super) requires_python: Option<String>,
}

impl ScriptNeeds {
    pub(super) fn read(script: &Path) -> Result<Option<Self>, LaunchError> {
        // A script that is too long or no text has no metadata that anybody could read.
        let Ok(Some(text)) = read_text(script, LONGEST_SCRIPT) else {
            return Ok(None);
        };
        let Some(block) = metadata_block(&text) else {
            return Ok(None);
        };
        let table = block
            .parse::<Table>()
            .map_err(|_| bad(script, "its `script` metadata is no TOML"))?;
        let dependencies = table
            .get("dependencies")
            .map_or(Some(Vec::new()), texts)
            .filter(|all| all.len() <= MOST_DEPENDENCIES)
            .ok_or_else(|| bad(script, "its `dependencies` are no list of names"))?;
        check_names(script, &dependencies)?;
        Ok(Some(Self {
            dependencies,
            requires_python: table
                .get("requires-python")
                .and_then(toml::Value::as_str)
                .map(str::to_owned),
        }))
    }
}

fn metadata_block(text: &str) -> Option<String> {
    let mut lines = text.lines().map(str::trim_end);
    lines.find(|line| *line == "# /// script")?;
    let mut block = String::new();
    for line in lines {
        if line == "# ///" {
            return Some(block);
        }
        let content = line.strip_prefix('#')?;
        block.push_str(content.strip_prefix(' ').unwrap_or(content));
        block.push('\n');
    }
    None
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeModules {
    /// They are there, or none are needed.
    Here,
    Missing,
}

/// What a Node project still needs. `None` when there is no `package.json`.
pub(super) fn node_modules(directory: &Path) -> Result<Option<NodeModules>, LaunchError> {
    let path = directory.join("package.json");
    let text = read_text(&path, LONGEST_MANIFEST).map_err(|source| LaunchError::Manifest {
        path: path.clone(),
        source,
    })?;
    let Some(text) = text else {
        return Ok(None);
    };
    let manifest: Value = serde_json::from_str(&text).map_err(|_| bad(&path, "it is no JSON"))?;
    let needs_some = ["dependencies", "devDependencies", "optionalDependencies"]
        .iter()
        .filter_map(|name| manifest.get(name)?.as_object())
        .any(|names| !names.is_empty());
    let has_some = fs::symlink_metadata(directory.join("node_modules")).is_ok();
    Ok(Some(if needs_some && !has_some {
        NodeModules::Missing
    } else {
        NodeModules::Here
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().expect("there is room");
        for (name, text) in files {
            fs::write(directory.path().join(name), text).expect("it is ours");
        }
        directory
    }

    #[track_caller]
    fn kind(files: &[(&str, &str)]) -> Option<PythonKind> {
        PythonProject::read(tree(files).path(), &[])
            .expect("it can be read")
            .map(|project| project.kind)
    }

    #[test]
    fn a_project_is_a_package_a_list_or_nothing() {
        const BUILDS: &str = "[build-system]\nrequires=[]\n[project]\nname='x'\n";
        const LISTS: &str = "[project]\nname='x'\ndependencies=['mcp<2']\n";
        const TOOLS: &str = "[tool.ruff]\nline-length=100\n";
        assert_eq!(kind(&[]), None);
        assert_eq!(kind(&[("server.py", "")]), None);
        assert_eq!(
            kind(&[("requirements.txt", "mcp")]),
            Some(PythonKind::Requirements)
        );
        assert_eq!(
            kind(&[("requirements.txt", "mcp"), ("pyproject.toml", BUILDS)]),
            Some(PythonKind::Package)
        );
        assert_eq!(kind(&[("setup.py", "")]), Some(PythonKind::Package));
        assert_eq!(kind(&[("setup.cfg", "")]), Some(PythonKind::Package));
        assert_eq!(
            kind(&[("pyproject.toml", LISTS)]),
            Some(PythonKind::Declared)
        );
        assert_eq!(
            kind(&[("pyproject.toml", LISTS), ("setup.py", "")]),
            Some(PythonKind::Package)
        );
        assert_eq!(kind(&[("pyproject.toml", TOOLS)]), None);
        assert_eq!(
            kind(&[("pyproject.toml", TOOLS), ("requirements.txt", "")]),
            Some(PythonKind::Requirements)
        );
        assert_eq!(
            kind(&[("pyproject.toml", "[tool.poetry]\nname='x'\n")]),
            Some(PythonKind::Package)
        );
    }

    #[test]
    fn declared_dependencies_come_with_the_extras_that_are_asked_for() {
        let tree = tree(&[(
            "pyproject.toml",
            "[project]\nname='x'\nrequires-python='>=3.10'\ndependencies=['a>1','b']\n[project.optional-dependencies]\nmore=['c']\n",
        )]);
        let read = |extras: &[&str]| {
            let extras: Vec<_> = extras.iter().map(|&extra| extra.to_owned()).collect();
            PythonProject::read(tree.path(), &extras)
                .expect("it can be read")
                .expect("there is one")
        };
        assert_eq!(read(&[]).dependencies, ["a>1", "b"]);
        assert_eq!(read(&["more"]).dependencies, ["a>1", "b", "c"]);
        assert_eq!(read(&[]).requires_python.as_deref(), Some(">=3.10"));
        assert_eq!(read(&["unknown"]).kind, PythonKind::Package);
    }

    #[test]
    fn a_manifest_that_does_not_parse_is_named_and_not_quoted() {
        let tree = tree(&[
            ("pyproject.toml", "secret = = 1"),
            ("package.json", "{secret"),
        ]);
        for error in [
            PythonProject::read(tree.path(), &[]).expect_err("no TOML"),
            node_modules(tree.path()).expect_err("no JSON"),
        ] {
            assert!(matches!(error, LaunchError::BadManifest { .. }));
            assert!(!format!("{error:?}").contains("secret"), "{error}");
        }
    }

    #[test]
    fn a_script_says_itself_what_it_needs() {
        let tree = tree(&[
            (
                "with.py",
                "#!/usr/bin/env python\n# /// script\n# requires-python = \">=3.11\"\n# dependencies = [\n#   \"mcp<2\",\n#   \"httpx\",\n# ]\n# ///\nprint()\n",
            ),
            ("without.py", "# a script\nprint()\n"),
            ("open.py", "# /// script\n# dependencies = []\nprint()\n"),
        ]);
        let read = |name: &str| ScriptNeeds::read(&tree.path().join(name)).expect("it is fine");
        assert_eq!(
            read("with.py"),
            Some(ScriptNeeds {
                dependencies: vec!["mcp<2".to_owned(), "httpx".to_owned()],
                requires_python: Some(">=3.11".to_owned()),
            })
        );
        assert_eq!(read("without.py"), None);
        assert_eq!(read("open.py"), None);
        assert_eq!(read("missing.py"), None);
    }

    #[test]
    fn modules_are_missing_only_when_some_are_needed() {
        let none = tree(&[("package.json", r#"{"name":"x"}"#)]);
        let some = tree(&[("package.json", r#"{"dependencies":{"zod":"3"}}"#)]);
        let read = |directory: &Path| node_modules(directory).expect("it can be read");
        assert_eq!(read(none.path()), Some(NodeModules::Here));
        assert_eq!(read(some.path()), Some(NodeModules::Missing));
        fs::create_dir(some.path().join("node_modules")).expect("it is ours");
        assert_eq!(read(some.path()), Some(NodeModules::Here));
        assert_eq!(read(tree(&[]).path()), None);
    }
}
