//! What a monitor is told of other hosts.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use millrace_proxy::monitor::PeerSettings;
use millrace_proxy::peer::Secret;
use millrace_proxy::rules::Network;

use super::{ErrorKind, MonitorOptions, ToolError, planes};

/// What the options say; none if they say nothing of other hosts.
pub(super) fn settings(options: &MonitorOptions) -> Result<Option<PeerSettings>, ToolError> {
    let usage = |context: &str| ToolError::new(ErrorKind::Usage, context);
    if options.window.is_empty() {
        return Ok(None);
    }
    // With none, those of `millrace sockets proxy`.
    let planes = planes::count(options).max(1);
    let path = options.secret.as_deref();
    let path = path.ok_or_else(|| usage("hosts need a secret: --secret FILE"))?;
    Ok(Some(PeerSettings {
        name: options.host.clone().unwrap_or_else(kernels_name),
        secret: secret(path)?,
        listen: options.listen,
        peers: options.peers.clone(),
        windows: options.window.iter().map(|text| window(text)).collect(),
        addresses: addresses(options)?,
        partitions: options.partitions.unwrap_or(planes),
        draw,
    }))
}

fn draw(bytes: &mut [u8]) {
    getrandom::fill(bytes).expect("the kernel draws numbers for everyone");
}

fn kernels_name() -> String {
    let name = rustix::system::uname();
    name.nodename().to_string_lossy().into_owned()
}

fn secret(path: &Path) -> Result<Secret, ToolError> {
    let shown = path.display();
    let failed = |error: std::io::Error| {
        let context = format!("{shown} could not be read");
        ToolError::new(ErrorKind::Usage, context).caused_by(error)
    };
    let mode = fs::metadata(path).map_err(failed)?.mode();
    if mode & 0o077 != 0 {
        let context = format!("others than its owner may read or change {shown}");
        return Err(ToolError::new(ErrorKind::Usage, context).advise("`chmod 600` ends that"));
    }
    let bytes = fs::read(path).map_err(failed)?;
    Secret::new(&bytes).ok_or_else(|| {
        let context = format!("{shown} has fewer than 32 bytes");
        ToolError::new(ErrorKind::Usage, context)
            .advise("`head -c 32 /dev/urandom` makes a secret")
    })
}

/// `HOST=PATH`, or a path alone. A path that has a `=` is told from that by its first `/`.
fn window(text: &str) -> (Option<String>, PathBuf) {
    match text.split_once('=') {
        Some((host, path)) if !host.contains('/') => (Some(host.to_owned()), path.into()),
        _ => (None, text.into()),
    }
}

/// Networks whose addresses hosts may have: `HOST=NETWORK`, or a network alone.
fn addresses(options: &MonitorOptions) -> Result<Vec<(Option<String>, Network)>, ToolError> {
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
