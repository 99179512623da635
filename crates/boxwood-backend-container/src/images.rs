//! Lists, pulls, imports and removes the engine's images.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use boxwood_api::{ImageInfo, ImageName, ImageSource, with_causes};
use boxwood_backend::{BoxFuture, ImageArchive, ImageError, Images, Progress};
use serde::Deserialize;

use crate::args::Args;
use crate::cli::{Cli, CliError};
use crate::pulled::PulledImages;
use crate::settings::ContainerSettings;

const LIST: Duration = Duration::from_secs(30);
const LIST_ATTEMPTS: usize = 10;
const REMOVE: Duration = Duration::from_mins(2);
/// Includes the transfer of the archive.
const IMPORT: Duration = Duration::from_hours(1);

/// Label of images that were imported through Boxwood.
const IMPORTED: &str = "boxwood.imported";

pub(crate) struct EngineImages {
    cli: Cli,
    pull_timeout: Duration,
    pulled: PulledImages,
}

/// Format for `image inspect` that both engines support. One list per image, because Podman prints an
/// object on several lines.
const INSPECTED: &str = "[{{json .ID}},{{json .RepoTags}},{{json .Size}},{{json .Created}}]";

#[derive(Deserialize)]
struct Inspected {
    id: String,
    tags: Option<Vec<String>>,
    size: Option<u64>,
    created: Option<String>,
}

impl EngineImages {
    pub(crate) fn new(cli: Cli, settings: &ContainerSettings, state_dir: &Path) -> Self {
        let file = state_dir.join(format!("pulled-{}", cli.engine.name()));
        Self {
            pulled: PulledImages::new(file),
            cli,
            pull_timeout: settings.pull_timeout,
        }
    }

    fn backend(&self) -> &'static str {
        self.cli.engine.name()
    }

    fn info(&self, name: String, image: &Inspected) -> ImageInfo {
        let created = image.created.as_deref();
        ImageInfo {
            name,
            backend: self.backend().to_owned(),
            source: ImageSource::Engine,
            id: Some(image.id.clone()),
            size_bytes: image.size,
            created: created.and_then(|text| text.parse().ok()),
        }
    }

    async fn inspect(&self, names: &[&str]) -> Result<Vec<Inspected>, CliError> {
        let mut args = Args::new(["image", "inspect", "--format", INSPECTED, "--"]);
        for name in names {
            args.flag(*name);
        }
        let output = self.cli.run(args.0, LIST).await?;
        Ok(output
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect())
    }

    async fn one(&self, name: &ImageName) -> Result<ImageInfo, ImageError> {
        let found = self.inspect(&[name.as_str()]).await;
        let found = found.map_err(|error| self.failed("inspect", name, error))?;
        match found.first() {
            Some(image) => Ok(self.info(name.as_str().to_owned(), image)),
            None => Err(self.not_found(name)),
        }
    }

    /// `attempts` is the number of attempts if images are removed between listing and inspection.
    async fn all(&self, attempts: usize) -> Result<Vec<ImageInfo>, CliError> {
        let args = Args::new(["image", "ls", "--quiet", "--no-trunc"]);
        let output = self.cli.run(args.0, LIST).await?;
        let mut ids: Vec<&str> = output.split_whitespace().collect();
        ids.sort_unstable();
        ids.dedup();
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let images = match self.inspect(&ids).await {
            Err(error) if error.no_such_image() && attempts > 1 => {
                return Box::pin(self.all(attempts - 1)).await;
            }
            images => images?,
        };
        let mut list: Vec<ImageInfo> = images
            .iter()
            .flat_map(|image| {
                let tags = image.tags.clone().unwrap_or_default();
                tags.into_iter().map(|tag| self.info(tag, image))
            })
            .collect();
        list.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(list)
    }

    /// Fails if the name belongs to an image that was not imported through Boxwood. Other programs run the
    /// engine's images by name and with privileges that no box has, so callers must not replace them.
    async fn check_free(&self, name: &ImageName) -> Result<(), ImageError> {
        match self.is_imported(name).await {
            Err(ImageError::NotFound { .. }) | Ok(true) => Ok(()),
            Err(error) => Err(error),
            Ok(false) => Err(ImageError::Reserved {
                image: name.to_string(),
                why: format!(
                    "{} has an image of this name that was not imported by Boxwood, and other programs may run it",
                    self.backend()
                ),
            }),
        }
    }

    async fn is_imported(&self, name: &ImageName) -> Result<bool, ImageError> {
        let format = "{{json .Config.Labels}}";
        let args = Args::new(["image", "inspect", "--format", format, "--", name.as_str()]);
        let labels = self.cli.run(args.0, LIST).await;
        let labels = labels.map_err(|error| self.failed("inspect", name, error))?;
        let labels: Option<BTreeMap<String, String>> =
            serde_json::from_str(labels.trim()).unwrap_or_default();
        Ok(labels.is_some_and(|labels| labels.contains_key(IMPORTED)))
    }

    /// Fails if the image was neither imported nor pulled through Boxwood: the engine is shared with others.
    async fn check_owned(&self, name: &ImageName) -> Result<(), ImageError> {
        if self.is_imported(name).await? || self.pulled.has(name) {
            return Ok(());
        }
        Err(ImageError::Unsupported {
            what: format!("image `{name}` was neither imported nor pulled by Boxwood"),
            hint: format!("remove it with `{} image rm {name}`", self.cli.program()),
        })
    }

    fn not_found(&self, name: &ImageName) -> ImageError {
        ImageError::NotFound {
            image: name.as_str().to_owned(),
            hint: format!(
                "`boxwood image pull {name} --backend {backend}`, or `boxwood image import`",
                name = name.as_str(),
                backend = self.backend()
            ),
        }
    }

    fn unavailable(&self, error: &CliError) -> ImageError {
        ImageError::Unavailable {
            why: format!(
                "{} is not available: {}",
                self.backend(),
                with_causes(error)
            ),
            hint: format!("check the output of `{} info`", self.cli.program()),
        }
    }

    /// `verb` is the operation on the image.
    fn failed(&self, verb: &str, name: &ImageName, error: CliError) -> ImageError {
        match error {
            CliError::TimedOut { after } => ImageError::TimedOut {
                what: format!("`{} image {verb} {name}`", self.cli.program()),
                after,
            },
            error if error.engine_is_unavailable() => self.unavailable(&error),
            error if error.no_such_image() => self.not_found(name),
            error => ImageError::Io {
                step: format!("{verb} image `{name}`"),
                source: std::io::Error::other(with_causes(&error)),
            },
        }
    }
}

impl Images for EngineImages {
    fn list(&self) -> BoxFuture<'_, Result<Vec<ImageInfo>, ImageError>> {
        Box::pin(async move {
            self.all(LIST_ATTEMPTS).await.map_err(|error| {
                if error.engine_is_unavailable() {
                    return self.unavailable(&error);
                }
                ImageError::Io {
                    step: "list images".to_owned(),
                    source: std::io::Error::other(with_causes(&error)),
                }
            })
        })
    }

    fn pull<'a>(
        &'a self,
        name: &'a ImageName,
        progress: &'a Progress,
    ) -> BoxFuture<'a, Result<ImageInfo, ImageError>> {
        Box::pin(async move {
            let image = name.as_str();
            let is_new = matches!(self.one(name).await, Err(ImageError::NotFound { .. }));
            progress.say(image, format!("pulling with {}", self.backend()));
            let args = Args::new(["image", "pull", "--", image]);
            let on_line = |line: &str| {
                if !line.is_empty() {
                    progress.say(image, line);
                }
            };
            match self.cli.follow(args.0, self.pull_timeout, on_line).await {
                Ok(()) => {}
                Err(CliError::TimedOut { after }) => {
                    return Err(ImageError::TimedOut {
                        what: format!("pulling `{image}`"),
                        after,
                    });
                }
                Err(error @ CliError::Refused { .. }) => {
                    if error.engine_is_unavailable() && !error.no_such_image() {
                        // The error may be the registry's, so check whether the engine is available.
                        if let Err(error) = self.inspect(&[image]).await
                            && error.engine_is_unavailable()
                        {
                            return Err(self.unavailable(&error));
                        }
                    }
                    return Err(ImageError::Pull {
                        image: image.to_owned(),
                        why: error.to_string(),
                        hint: "check the name and that its registry is reachable, or import an \
                               image: `boxwood image import DIR|TAR NAME`"
                            .to_owned(),
                    });
                }
                Err(error) => return Err(self.failed("pull", name, error)),
            }
            // An image that already existed is not owned by Boxwood.
            if is_new {
                self.pulled.add(name);
            }
            self.one(name).await
        })
    }

    fn import<'a>(
        &'a self,
        name: &'a ImageName,
        archive: ImageArchive,
    ) -> BoxFuture<'a, Result<ImageInfo, ImageError>> {
        Box::pin(async move {
            self.check_free(name).await?;
            let mark = format!("LABEL {IMPORTED}=true");
            let args = Args::new(["image", "import", "--change", &mark, "-", name.as_str()]);
            let Err(error) = self.cli.feed(args.0, archive, IMPORT).await else {
                return self.one(name).await;
            };
            // An engine that stops during an import reports the same error as a truncated archive.
            match self.cli.explain(error).await {
                error @ CliError::Refused { .. } if !error.engine_is_unavailable() => {
                    Err(ImageError::BadArchive {
                        why: error.to_string(),
                    })
                }
                error => Err(self.failed("import", name, error)),
            }
        })
    }

    fn remove<'a>(&'a self, name: &'a ImageName) -> BoxFuture<'a, Result<(), ImageError>> {
        Box::pin(async move {
            self.check_owned(name).await?;
            let args = Args::new(["image", "rm", "--", name.as_str()]);
            match self.cli.run(args.0, REMOVE).await {
                Ok(_) => {
                    self.pulled.remove(name);
                    Ok(())
                }
                Err(error) if error.is_in_use() => Err(ImageError::InUse {
                    image: name.as_str().to_owned(),
                    why: error.to_string(),
                }),
                Err(error) => Err(self.failed("remove", name, error)),
            }
        })
    }
}
