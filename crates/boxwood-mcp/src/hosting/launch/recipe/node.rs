//! Install scripts for Node servers.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::script::Recipe;
use super::shell_quote::quote;
use super::{LaunchContext, Resolved};
use crate::hosting::launch::parse::NodeTool;
use crate::hosting::launch::parse::command::{Launcher, ParsedCommand};
use crate::hosting::launch::parse::package::NpmPackage;
use crate::hosting::launch::project::{NodeModules, node_modules};
use crate::hosting::launch::workspace::infer::nearest;
use crate::hosting::launch::workspace::manifests;
use crate::hosting::launch::workspace::paths::real;
use crate::hosting::launch::{CACHE, LaunchError};

const MANIFEST: [&str; 1] = ["package.json"];
const FINISH: &str =
    r#"finish "$program" "$mcp/node_modules/.bin" ${node_brought:+"$mcp/node/bin"}"#;

/// `npx`.
pub(crate) fn tool(
    tool: &NodeTool,
    parsed: &ParsedCommand,
    context: &LaunchContext<'_>,
) -> Result<Resolved, LaunchError> {
    let what: Vec<_> = tool.packages.iter().map(NpmPackage::word).collect();
    let mut recipe = Recipe::new("node-tool", &what.join(" "));
    let asked_for = Packages::of(&tool.packages, context, &mut recipe)?;
    let with = with(context, &mut recipe)?;
    recipe.line(format!(
        "say {}",
        quote(&format!("installing {}", what.join(" ")))
    ));
    recipe.line("find_node npm");

    // Without a script, the directory is data, and its `package.json` must not be installed.
    let project = if parsed.scripts().next().is_some() {
        missing_modules(parsed, context)?
    } else {
        None
    };
    if let Some(directory) = &project {
        // Set as variables, because the shell function takes its arguments as packages.
        for option in &tool.options {
            let (name, value) = option.split_once('=').unwrap_or((option, "true"));
            let name = name.trim_start_matches('-').replace('-', "_");
            recipe.line(format!("export npm_config_{name}={}", quote(value)));
        }
        install_project(directory, &asked_for, &with, context, &mut recipe)?;
    } else {
        let mut dependencies = asked_for.known.clone();
        dependencies.extend(with.known.clone());
        let manifest = json!({
            "private": true,
            "dependencies": dependencies,
            "overrides": with.known,
        });
        let mut words = vec![manifest.to_string()];
        words.extend(tool.options.iter().cloned());
        words.extend(asked_for.addresses.iter().cloned());
        words.extend(with.addresses.iter().cloned());
        recipe.call("install_packages", words);
    }
    recipe.key.add_all("option", &tool.options);
    let command = if let Some(name) = &tool.program {
        recipe.key.add("program", name);
        recipe.call("node_program", [name]);
        format!("{CACHE}/node_modules/.bin/{name}")
    } else {
        recipe.key.add("of-package", "");
        // The name of a package from a URL is read from its manifest after the install.
        let first = tool.packages.first().map(|package| match package {
            NpmPackage::Registry { name, .. } => name.as_str(),
            NpmPackage::Elsewhere { .. } => "",
        });
        let others = with.known.keys().map(String::as_str);
        let words = [first.unwrap_or_default()].into_iter().chain(others);
        recipe.call("package_program", words);
        what.first().cloned().unwrap_or_default()
    };
    recipe.line(FINISH);
    let args = context.words(&tool.args);
    Ok(Resolved::new(command, args, Some(recipe)))
}

/// `node` or `npm` with a project or script.
pub(crate) fn run(
    program: &'static str,
    args: &[String],
    parsed: &ParsedCommand,
    context: &LaunchContext<'_>,
) -> Result<Resolved, LaunchError> {
    let project = missing_modules(parsed, context)?;
    let what = project
        .as_deref()
        .and_then(|path| path.file_name()?.to_str())
        .unwrap_or(program);
    let mut recipe = Recipe::new("node-run", what);
    let with = with(context, &mut recipe)?;
    let is_empty = with.known.is_empty() && with.addresses.is_empty();
    if project.is_none() && !is_empty {
        return Err(LaunchError::WithNothing {
            command: program.to_owned(),
        });
    }
    let needs_npm = project.is_some() || program == "npm";
    recipe.key.add("program", program);
    recipe.call("find_node", [if needs_npm { "npm" } else { "node" }]);
    if let Some(directory) = &project {
        let none = Packages::default();
        install_project(directory, &none, &with, context, &mut recipe)?;
    }
    recipe.line(format!(r#"program="$(command -v {program})""#));
    recipe.line(FINISH);
    let args = context.words(args);
    Ok(Resolved::new(program.to_owned(), args, Some(recipe)))
}

/// Packages by name, and packages by URL or path.
#[derive(Default)]
struct Packages {
    known: Map<String, Value>,
    addresses: Vec<String>,
}

impl Packages {
    fn of(
        packages: &[NpmPackage],
        context: &LaunchContext<'_>,
        recipe: &mut Recipe,
    ) -> Result<Self, LaunchError> {
        let mut sorted = Self::default();
        for package in packages {
            match package {
                NpmPackage::Registry { name, range } => {
                    sorted
                        .known
                        .insert(name.clone(), Value::from(range.clone()));
                }
                NpmPackage::Elsewhere { address } => {
                    sorted.addresses.push(context.requirement(address, recipe)?);
                }
            }
        }
        recipe
            .key
            .add("known", &Value::from(sorted.known.clone()).to_string());
        recipe.key.add_all("address", &sorted.addresses);
        Ok(sorted)
    }
}

fn with(context: &LaunchContext<'_>, recipe: &mut Recipe) -> Result<Packages, LaunchError> {
    let packages = context
        .with_words()?
        .iter()
        .map(|word| NpmPackage::read(word))
        .collect::<Result<Vec<_>, _>>()?;
    recipe.key.add("with", "");
    Packages::of(&packages, context, recipe)
}

/// The project of the started program, if its `node_modules` are missing.
fn missing_modules(
    parsed: &ParsedCommand,
    context: &LaunchContext<'_>,
) -> Result<Option<PathBuf>, LaunchError> {
    if context.path_map.is_none() {
        return Ok(None);
    }
    let base = context.cwd_on_host().unwrap_or_default();
    let starts = parsed
        .scripts()
        .filter_map(|script| Some(base.join(script).parent()?.to_owned()));
    let found = starts
        .chain([base.clone()])
        .filter(|start| start.is_absolute())
        .filter_map(|start| nearest(&real(&start), &MANIFEST))
        .find(|found| context.in_box(found).is_some());
    let Some(directory) = found else {
        return Ok(None);
    };
    match node_modules(&directory)? {
        Some(NodeModules::Missing) => Ok(Some(directory)),
        Some(NodeModules::Here) | None => Ok(None),
    }
}

fn install_project(
    directory: &Path,
    asked_for: &Packages,
    with: &Packages,
    context: &LaunchContext<'_>,
    recipe: &mut Recipe,
) -> Result<(), LaunchError> {
    let place = context.in_box(directory).unwrap_or_default();
    context.show(directory, recipe)?;
    recipe.key.add("project", &place);
    manifests::add_manifests(&mut recipe.key, directory)?;
    recipe.line(format!(
        "say {}",
        quote(&format!("installing the dependencies of {place}"))
    ));
    let known = |packages: &Packages| Value::from(packages.known.clone()).to_string();
    let mut words = vec![place.clone(), known(asked_for), known(with)];
    words.extend(asked_for.addresses.iter().cloned());
    words.extend(with.addresses.iter().cloned());
    recipe.call("install_node_project", words);
    recipe.has_node_modules = true;
    Ok(())
}

/// `server-memory` writes beside its code unless this variable is set, and installs are read-only.
pub(crate) const MEMORY_FILE: (&str, &str) = ("MEMORY_FILE_PATH", "/workspace/memory.jsonl");

pub(crate) fn is_server_memory(launcher: &Launcher) -> bool {
    const PACKAGE: &str = "@modelcontextprotocol/server-memory";
    let Launcher::NodeTool(tool) = launcher else {
        return false;
    };
    tool.packages
        .iter()
        .any(|package| matches!(package, NpmPackage::Registry { name, .. } if name == PACKAGE))
}
