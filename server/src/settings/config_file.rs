//! The configuration file: YAML with mongod's keys.

use std::path::{Path, PathBuf};

use yaml_rust2::{Yaml, YamlLoader};

use super::{ServeOptions, SettingsError};

/// How deep keys may nest.
const DEPTH_MAX: usize = 8;

/// Fills the options that are not given with those of the file at `path`.
pub(super) fn merge(mut options: ServeOptions, path: &Path) -> Result<ServeOptions, SettingsError> {
    let text = std::fs::read_to_string(path).map_err(|source| SettingsError::File {
        path: path.to_owned(),
        source,
    })?;
    let error = |reason: String| SettingsError::Config {
        path: path.to_owned(),
        reason,
    };
    let documents = YamlLoader::load_from_str(&text).map_err(|e| error(e.to_string()))?;
    let mut entries = Vec::new();
    for document in &documents {
        flatten("", document, 0, &mut entries).map_err(error)?;
    }
    for (key, value) in entries {
        apply(&mut options, &key, &value).map_err(error)?;
    }
    Ok(options)
}

/// Lists the scalars below `yaml` with their dotted keys.
fn flatten(
    prefix: &str,
    yaml: &Yaml,
    depth: usize,
    entries: &mut Vec<(String, String)>,
) -> Result<(), String> {
    let value = match yaml {
        Yaml::Hash(hash) if depth < DEPTH_MAX => {
            for (key, value) in hash {
                let key = key
                    .as_str()
                    .ok_or_else(|| format!("{prefix}: a key is not a string"))?;
                let name = if prefix.is_empty() {
                    key.to_owned()
                } else {
                    format!("{prefix}.{key}")
                };
                flatten(&name, value, depth + 1, entries)?;
            }
            return Ok(());
        }
        Yaml::Null if prefix.is_empty() => return Ok(()),
        Yaml::String(text) | Yaml::Real(text) => text.clone(),
        Yaml::Integer(number) => number.to_string(),
        Yaml::Boolean(flag) => flag.to_string(),
        _ => return Err(format!("{prefix}: a value is expected here")),
    };
    entries.push((prefix.to_owned(), value));
    Ok(())
}

fn apply(options: &mut ServeOptions, key: &str, value: &str) -> Result<(), String> {
    match key {
        "storage.dbPath" => fill(&mut options.dbpath, PathBuf::from(value)),
        "storage.device" => fill(&mut options.device, value.to_owned()),
        "storage.journal.commitIntervalMs" => {
            fill(&mut options.journal_commit_interval, number(key, value)?);
        }
        "storage.engine" if value == "rocksdb" => {}
        "storage.cacheSizeGB" | "storage.wiredTiger.engineConfig.cacheSizeGB" => {
            fill(&mut options.cache_size_gb, number(key, value)?);
        }
        "net.port" => fill(&mut options.port, number(key, value)?),
        "net.bindIp" => fill(&mut options.bind_ip, value.to_owned()),
        "net.maxIncomingConnections" => fill(&mut options.max_conns, number(key, value)?),
        "net.unixDomainSocket.enabled" => options.unix_socket |= flag(key, value)?,
        "net.userLevelSockets.enabled" => {
            if flag(key, value)? {
                fill(&mut options.sockets, None);
            }
        }
        "net.userLevelSockets.broker" => {
            fill(&mut options.sockets_broker, PathBuf::from(value));
        }
        "net.userLevelSockets.spinMicros" => {
            fill(&mut options.socket_spin_micros, number(key, value)?);
        }
        "net.metricsPort" => fill(&mut options.metrics_port, number(key, value)?),
        "net.workerThreads" => fill(&mut options.worker_threads, number(key, value)?),
        "systemLog.destination" if value == "file" => {}
        "systemLog.logAppend" => {
            if !flag(key, value)? {
                return Err(format!("{key}: the log is always appended to"));
            }
        }
        "systemLog.path" => fill(&mut options.logpath, PathBuf::from(value)),
        "systemLog.quiet" => options.quiet |= flag(key, value)?,
        "processManagement.pidFilePath" => fill(&mut options.pid_file_path, PathBuf::from(value)),
        key => match key.strip_prefix("setParameter.") {
            // Those of the command line come later in the list and go before them.
            Some(name) => options.set_parameter.insert(0, format!("{name}={value}")),
            None if matches!(key, "storage.engine" | "systemLog.destination") => {
                return Err(format!("{key}: '{value}' is not supported"));
            }
            None => return Err(format!("Unrecognized option: {key}")),
        },
    }
    Ok(())
}

fn fill<T>(option: &mut Option<T>, value: T) {
    option.get_or_insert(value);
}

fn number<T: std::str::FromStr>(key: &str, value: &str) -> Result<T, String> {
    value
        .parse()
        .map_err(|_| format!("{key}: '{value}' is not a legal number here"))
}

fn flag(key: &str, value: &str) -> Result<bool, String> {
    number(key, value).map_err(|_| format!("{key}: '{value}' is neither true nor false"))
}
