//! How Node servers are installed.
//!
//! Comes in: what a launcher was told, and the directory of the host it works on. Goes out: an install
//! script that ends with a program. Never here: where node comes from; the script finds out in the box.

use std::path::{Path, PathBuf};

use boxwood_api::DEFAULT_MOUNT_PATH;
use serde_json::{Map, Value, json};

use super::asked::Asked;
use super::infer::nearest;
use super::npm::{NodeProgram, NodeTool};
use super::package::NpmPackage;
use super::paths::real;
use super::project::{NodeModules, node_modules};
use super::quote::quote;
use super::recipe::Recipe;
use super::scene::{Drawn, Scene};
use super::{CACHE, LaunchError, tree};

const MANIFEST: [&str; 1] = ["package.json"];
const FINISH: &str =
    r#"finish "$program" "$mcp/node_modules/.bin" ${node_brought:+"$mcp/node/bin"}"#;

/// `npx` and its like.
pub(super) fn tool(
    tool: &NodeTool,
    asked: &Asked,
    scene: &Scene<'_>,
) -> Result<Drawn, LaunchError> {
    let what: Vec<_> = tool.packages.iter().map(NpmPackage::word).collect();
    let mut recipe = Recipe::new("node-tool", &what.join(" "));
    let asked_for = Packages::of(&tool.packages, scene, &mut recipe)?;
    let with = with(scene, &mut recipe)?;
    recipe.line(format!(
        "say {}",
        quote(&format!("installing {}", what.join(" ")))
    ));
    recipe.line("find_node npm");

    // Without a script the directory is what the tool works on, and whatever its manifest says is nothing
    // that anybody asked to be run.
    let project = if asked.scripts().next().is_some() {
        missing_modules(asked, scene)?
    } else {
        None
    };
    let mut links = Vec::new();
    if let Some(directory) = &project {
        // By variables: what is told in words is another package to the script.
        for option in &tool.options {
            let (name, value) = option.split_once('=').unwrap_or((option, "true"));
            let name = name.trim_start_matches('-').replace('-', "_");
            recipe.line(format!("export npm_config_{name}={}", quote(value)));
        }
        let link = install_project(directory, &asked_for, &with, scene, &mut recipe)?;
        links.push(link);
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
    let command = match &tool.program {
        NodeProgram::Named(name) => {
            recipe.key.add("program", name);
            recipe.call("node_program", [name]);
            format!("{CACHE}/node_modules/.bin/{name}")
        }
        NodeProgram::Line(_) => {
            recipe.key.add("line", "");
            recipe.line("program=/bin/sh");
            "/bin/sh".to_owned()
        }
        NodeProgram::OfPackage => {
            recipe.key.add("of-package", "");
            // A package from an address has its name from its manifest: the one that is none of ours.
            let first = tool.packages.first().map(|package| match package {
                NpmPackage::Registry { name, .. } => name.as_str(),
                NpmPackage::Elsewhere { .. } => "",
            });
            let others = with.known.keys().map(String::as_str);
            let words = [first.unwrap_or_default()].into_iter().chain(others);
            recipe.call("package_program", words);
            what.first().cloned().unwrap_or_default()
        }
    };
    recipe.line(FINISH);
    let args = match &tool.program {
        NodeProgram::Line(line) => vec!["-c".to_owned(), line.clone()],
        NodeProgram::Named(_) | NodeProgram::OfPackage => scene.words(&tool.args),
    };
    let mut drawn = Drawn::new(command, args, Some(recipe));
    drawn.links = links;
    Ok(drawn)
}

/// `node` or `npm`, in a project or beside a script.
pub(super) fn run(
    program: &'static str,
    args: &[String],
    asked: &Asked,
    scene: &Scene<'_>,
) -> Result<Drawn, LaunchError> {
    let project = missing_modules(asked, scene)?;
    let what = project
        .as_deref()
        .and_then(|path| path.file_name()?.to_str())
        .unwrap_or(program);
    let mut recipe = Recipe::new("node-run", what);
    let with = with(scene, &mut recipe)?;
    let is_empty = with.known.is_empty() && with.addresses.is_empty();
    if project.is_none() && !is_empty {
        return Err(LaunchError::WithNothing {
            command: program.to_owned(),
        });
    }
    let needs_npm = project.is_some() || program == "npm";
    recipe.key.add("program", program);
    recipe.call("find_node", [if needs_npm { "npm" } else { "node" }]);
    let mut links = Vec::new();
    if let Some(directory) = &project {
        let none = Packages::default();
        links.push(install_project(
            directory,
            &none,
            &with,
            scene,
            &mut recipe,
        )?);
    }
    recipe.line(format!(r#"program="$(command -v {program})""#));
    recipe.line(FINISH);
    let mut drawn = Drawn::new(program.to_owned(), scene.words(args), Some(recipe));
    drawn.links = links;
    Ok(drawn)
}

/// Packages with a name, and others.
#[derive(Default)]
struct Packages {
    known: Map<String, Value>,
    addresses: Vec<String>,
}

impl Packages {
    fn of(
        packages: &[NpmPackage],
        scene: &Scene<'_>,
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
                    sorted.addresses.push(scene.requirement(address, recipe)?);
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

fn with(scene: &Scene<'_>, recipe: &mut Recipe) -> Result<Packages, LaunchError> {
    let packages = scene
        .with_words()?
        .iter()
        .map(|word| NpmPackage::read(word))
        .collect::<Result<Vec<_>, _>>()?;
    recipe.key.add("with", "");
    Packages::of(&packages, scene, recipe)
}

/// The project of what is started, when its modules are not there.
fn missing_modules(asked: &Asked, scene: &Scene<'_>) -> Result<Option<PathBuf>, LaunchError> {
    if scene.rewrite.is_none() {
        return Ok(None);
    }
    let base = scene.cwd_on_host().unwrap_or_default();
    let starts = asked
        .scripts()
        .filter_map(|script| Some(base.join(script).parent()?.to_owned()));
    let found = starts
        .chain([base.clone()])
        .filter(|start| start.is_absolute())
        .filter_map(|start| nearest(&real(&start), &MANIFEST))
        .find(|found| scene.in_box(found).is_some());
    let Some(directory) = found else {
        return Ok(None);
    };
    match node_modules(&directory)? {
        Some(NodeModules::Missing) if scene.is_direct() => {
            Err(LaunchError::NoModules { path: directory })
        }
        Some(NodeModules::Missing) => Ok(Some(directory)),
        Some(NodeModules::Here) | None => Ok(None),
    }
}

/// Comes back with the link that leads from the copy to the modules.
fn install_project(
    directory: &Path,
    asked_for: &Packages,
    with: &Packages,
    scene: &Scene<'_>,
    recipe: &mut Recipe,
) -> Result<(PathBuf, String), LaunchError> {
    let place = scene.in_box(directory).unwrap_or_default();
    scene.show(directory, recipe)?;
    recipe.key.add("project", &place);
    tree::add_manifests(&mut recipe.key, directory)?;
    recipe.line(format!(
        "say {}",
        quote(&format!("installing what {place} needs"))
    ));
    let known = |packages: &Packages| Value::from(packages.known.clone()).to_string();
    let mut words = vec![place.clone(), known(asked_for), known(with)];
    words.extend(asked_for.addresses.iter().cloned());
    words.extend(with.addresses.iter().cloned());
    recipe.call("install_node_project", words);
    let inside = Path::new(&place)
        .strip_prefix(DEFAULT_MOUNT_PATH)
        .unwrap_or(Path::new(""))
        .to_owned();
    Ok((inside.join("node_modules"), format!("{CACHE}/node_modules")))
}
