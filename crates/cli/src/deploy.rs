//! The deployment as it stands: file, then what the command line says over it. The only reader of the environment.

use std::path::{Path, PathBuf};

use policy::{Deployment, Destination, EnvName, Surroundings, Tier, TierChoice, header_secrets};
use runs::Granted;

use crate::args::{Deploy, FloorName, SurroundingsName, TierName};
use crate::exit::usage;

/// The file that is read where none is named.
pub(crate) const FILE: &str = "oubliette.toml";
/// Bytes a deployment may have.
const MAX_BYTES: u64 = 1 << 20;

/// A deployment with where it came from.
pub(crate) struct Deployed {
    pub(crate) deployment: Deployment,
    /// The text of the file, for its digest; empty for the built-in defaults.
    pub(crate) text: String,
    /// That file; none for the built-in defaults.
    pub(crate) file: Option<PathBuf>,
    /// The folder of all runs.
    pub(crate) store: PathBuf,
}

/// Reads the deployment and applies the command line.
pub(crate) fn load(deploy: &Deploy) -> anyhow::Result<Deployed> {
    let mut deployed = read(deploy.config.as_deref(), deploy.data.as_deref())?;
    let isolation = &mut deployed.deployment.isolation;
    if let Some(tier) = deploy.tier {
        isolation.tier = match tier {
            TierName::Auto => TierChoice::Auto,
            TierName::Confined => TierChoice::Confined,
            TierName::Namespace => TierChoice::Namespace,
            TierName::Gvisor => TierChoice::Gvisor,
            TierName::Microvm => TierChoice::Microvm,
            TierName::Wasm => TierChoice::Wasm,
        };
    }
    if let Some(floor) = deploy.floor {
        isolation.floor = match floor {
            FloorName::Confined => Tier::Confined,
            FloorName::Namespace => Tier::Namespace,
            FloorName::Gvisor => Tier::Gvisor,
            FloorName::Microvm => Tier::Microvm,
        };
    }
    if let Some(surroundings) = deploy.surroundings {
        isolation.surroundings = match surroundings {
            SurroundingsName::None => Surroundings::None,
            SurroundingsName::Gvisor => Surroundings::Gvisor,
            SurroundingsName::Microvm => Surroundings::Microvm,
        };
    }
    Ok(deployed)
}

/// Reads the file only.
pub(crate) fn read(config: Option<&Path>, data: Option<&Path>) -> anyhow::Result<Deployed> {
    let file = config.or(Path::new(FILE).exists().then_some(Path::new(FILE))).map(Path::to_path_buf);
    let text = file.as_ref().map_or(Ok(String::new()), |file| text_of("the deployment", file))?;
    let beside = config.and_then(Path::parent).map(Path::to_path_buf);
    let name = config.map_or_else(|| FILE.to_owned(), |file| file.display().to_string());
    let deployment = if text.is_empty() { Deployment::default() } else { Deployment::parse(&name, &text)? };
    let dir = match data {
        Some(dir) => dir.to_path_buf(),
        // A relative folder is beside the file that names it.
        None => beside.unwrap_or_default().join(&deployment.records.dir),
    };
    Ok(Deployed { deployment, text, file, store: dir.join("runs") })
}

/// The text of an operator's file; `what` names it in messages.
pub(crate) fn text_of(what: &str, file: &Path) -> anyhow::Result<String> {
    let problem = |why: &str| usage(format!("cannot read {what} {}: {why}", file.display()));
    let meta = std::fs::metadata(file).map_err(|e| problem(&plain(&e)))?;
    if !meta.is_file() {
        return Err(problem("it is not a file"));
    }
    if meta.len() > MAX_BYTES {
        return Err(problem("it is larger than 1 MiB"));
    }
    let text = std::fs::read_to_string(file).map_err(|e| problem(&plain(&e)))?;
    // An empty file is a file, and means the defaults; a comment keeps it apart from no file.
    Ok(if text.is_empty() { "\n".to_owned() } else { text })
}

/// The system's word without its number.
pub(crate) fn plain(e: &std::io::Error) -> String {
    e.to_string().split(" (os error").next().unwrap_or_default().to_lowercase()
}

/// Where this user keeps caches, if that was said. The standard says to ignore a path that is not absolute.
pub(crate) fn cache() -> Option<PathBuf> {
    caches().map(|folder| folder.join("oubliette"))
}

/// Where this user keeps everybody's caches.
pub(crate) fn caches() -> Option<PathBuf> {
    std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|p| p.is_absolute())
}

/// Where this user's programs are found.
pub(crate) fn path() -> std::ffi::OsString {
    std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into())
}

/// The key for the model server.
pub(crate) fn model_key(deployment: &Deployment) -> anyhow::Result<Option<(String, String)>> {
    let Some(name) = &deployment.model.api_key_env else { return Ok(None) };
    match std::env::var(name.as_str()) {
        Ok(value) if !value.is_empty() => Ok(Some((name.to_string(), value))),
        _ => Err(usage(format!("`model.api_key_env` names {name}, which is not set"))),
    }
}

/// The values that the operator hands into the sandbox on purpose.
pub(crate) fn secrets(deployment: &Deployment) -> anyhow::Result<Vec<(String, String)>> {
    deployment
        .secrets
        .iter()
        .map(|name| match std::env::var(name.as_str()) {
            Ok(value) => Ok((name.to_string(), value)),
            Err(_) => Err(usage(format!("`secrets.pass` names {name}, which is not set"))),
        })
        .collect()
}

/// Values by the names of their variables.
pub(crate) type Named = Vec<(String, String)>;

/// What may be reached, with the values of its headers; and these, by the names of their variables, to be masked.
pub(crate) fn granted(network: &[Destination]) -> anyhow::Result<(Vec<Granted>, Named)> {
    let variable = |name: &EnvName| std::env::var(name.as_str()).ok();
    let granted = network.iter().map(|destination| Granted::new(destination.clone(), variable));
    let granted: Vec<Granted> = granted.collect::<Result<_, _>>().map_err(|e| usage(e.to_string()))?;
    let headers = network.iter().filter_map(Destination::header).map(|header| &header.secret_env);
    // A part of it that is a secret by itself (the token behind `Bearer`, a password) is masked by itself too.
    let headers = headers.filter_map(|name| Some((name, variable(name)?)));
    let parts = headers.flat_map(|(name, value)| {
        header_secrets(value.trim()).into_iter().map(move |part| (name.to_string(), part))
    });
    Ok((granted, parts.collect()))
}
