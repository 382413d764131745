//! The settings of a broker for other hosts.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use millrace_broker::broker::PeerSettings;
use millrace_broker::peer::Secret;
use millrace_broker::rules::Network;

use super::{BrokerOptions, forwarder_threads};
use crate::{ErrorKind, ToolError};

/// The settings from the options; `None` without a window.
pub(super) fn settings(options: &BrokerOptions) -> Result<Option<PeerSettings>, ToolError> {
    let usage = |context: &str| ToolError::new(ErrorKind::Usage, context);
    if options.window.is_empty() {
        return Ok(None);
    }
    // With none, the forwarders of `millrace sockets forwarder`.
    let forwarders = forwarder_threads::count(options).max(1);
    let path = options.secret.as_deref();
    let path = path.ok_or_else(|| usage("a window needs a secret: name it by --secret FILE"))?;
    Ok(Some(PeerSettings {
        name: options.host.clone().unwrap_or_else(kernels_name),
        secret: secret(path)?,
        listen: options.listen,
        peers: options.peers.clone(),
        windows: options.window.iter().map(|text| window(text)).collect(),
        addresses: addresses(options)?,
        partitions: options.partitions.unwrap_or(forwarders),
        fill_random,
    }))
}

fn fill_random(bytes: &mut [u8]) {
    getrandom::fill(bytes).expect("the kernel draws numbers for everyone");
}

fn kernels_name() -> String {
    let name = rustix::system::uname();
    name.nodename().to_string_lossy().into_owned()
}

fn secret(path: &Path) -> Result<Secret, ToolError> {
    let shown = path.display();
    let failed = |error: std::io::Error| {
        let context = format!("reading {shown}");
        ToolError::new(ErrorKind::Usage, context).caused_by(error)
    };
    let mode = fs::metadata(path).map_err(failed)?.mode();
    if mode & 0o077 != 0 {
        let context = format!("the group or others can read or write {shown}");
        return Err(ToolError::new(ErrorKind::Usage, context).advise("run `chmod 600` on it"));
    }
    let bytes = fs::read(path).map_err(failed)?;
    Secret::new(&bytes).ok_or_else(|| {
        let context = format!("{shown} has fewer than 32 bytes, the least for a secret");
        ToolError::new(ErrorKind::Usage, context).advise("make one by `head -c 32 /dev/urandom`")
    })
}

/// `HOST=PATH`, or a path alone. A `=` behind the first `/` belongs to the path.
fn window(text: &str) -> (Option<String>, PathBuf) {
    match text.split_once('=') {
        Some((host, path)) if !host.contains('/') => (Some(host.to_owned()), path.into()),
        _ => (None, text.into()),
    }
}

/// The networks of hosts' addresses: `HOST=NETWORK`, or a network alone.
fn addresses(options: &BrokerOptions) -> Result<Vec<(Option<String>, Network)>, ToolError> {
    let parse = |text: &String| {
        let (host, network) = match text.split_once('=') {
            Some((host, network)) => (Some(host.to_owned()), network),
            None => (None, text.as_str()),
        };
        let network = network.parse::<Network>().map_err(|error| {
            let context = format!("--peer-addresses {text}");
            ToolError::new(ErrorKind::Usage, context).caused_by(error)
        })?;
        Ok((host, network))
    };
    options.peer_addresses.iter().map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_may_name_its_host() {
        assert_eq!(window("left=/w"), (Some("left".to_owned()), "/w".into()));
        assert_eq!(window("/dev/w=1"), (None, "/dev/w=1".into()));
    }
}
