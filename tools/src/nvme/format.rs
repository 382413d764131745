//! `millrace nvme format`: refuses unless forced, and says then what would be lost.

use std::io::Write;
use std::time::{Duration, Instant};

use millrace_nvme::spec::identify::NamespaceData;
use millrace_nvme::{Erase, ErrorKind as Kind, Namespace};
use serde_json::json;

use super::error::device_error;
use super::identify::format_text;
use super::quantity::{bytes, duration};
use super::{Device, EraseChoice, ErrorKind, FormatOptions, ToolError, report};

/// Bits of FNA (Base 1.4, figure 247): all namespaces are formatted, all are erased, keys can be destroyed.
const FORMATS_ALL: u8 = 1 << 0;
const ERASES_ALL: u8 = 1 << 1;
const ERASES_KEYS: u8 = 1 << 2;

/// The command: opens the device and formats.
pub(super) fn run(options: &FormatOptions, out: &mut dyn Write) -> Result<(), ToolError> {
    let named = options.spec.namespace_or(options.namespace)?;
    if named.is_none() {
        let context = format!("{}: which namespace is to be formatted?", options.spec);
        let advice = "name it by --namespace; `millrace nvme identify` lists them";
        return Err(ToolError::new(ErrorKind::Usage, context).advise(advice));
    }
    let device = Device::open(&options.spec)?;
    format(&device, options, out)
}

/// Formats a namespace of an open device, if that is forced.
///
/// # Errors
/// [`ErrorKind::NotForced`], with what would be lost; [`ErrorKind::Usage`] if the device cannot do what is
/// asked for; [`ErrorKind::Device`] if it fails.
pub fn format(
    device: &Device,
    options: &FormatOptions,
    out: &mut dyn Write,
) -> Result<(), ToolError> {
    let usage = |context: String| ToolError::new(ErrorKind::Usage, context);
    let Some(id) = options.spec.namespace_or(options.namespace)? else {
        return Err(usage(format!("{}: which namespace?", device.name())));
    };
    let data = device.data();
    if !data.has_format() {
        return Err(usage(format!("{} cannot be formatted", device.title())));
    }
    if options.erase == Some(EraseChoice::Crypto) && data.format & ERASES_KEYS == 0 {
        let context = format!(
            "{} has no encryption whose key it could destroy",
            device.title()
        );
        return Err(usage(context).advise("--erase user makes the data unreadable as well"));
    }
    let before = identify(device, id)?;
    let (index, new) = new_format(device, id, options.format, before.as_ref())?;
    let victims = victims(device, id, options.erase)?;
    if !options.force {
        return Err(refusal(device, &victims, &new)?);
    }
    let erase = match options.erase {
        None => Erase::No,
        Some(EraseChoice::User) => Erase::UserData,
        Some(EraseChoice::Crypto) => Erase::Cryptographic,
    };
    let start = Instant::now();
    let limit = Duration::from_secs(options.timeout);
    device
        .controller()
        .format(id, index, erase, limit)
        .map_err(device_error(device.name(), "formatting"))?;
    let took = start.elapsed();
    if options.json {
        let value = json!({
            "device": device.name(),
            "namespace": id,
            "namespaces_lost": victims,
            "format": index,
            "seconds": took.as_secs_f64(),
        });
        return report::show_json(&value, out);
    }
    let seconds = duration(took.as_secs_f64() * 1e9);
    let text = format!(
        "{}: namespace {id} was formatted in {seconds}: {new}\n",
        device.title()
    );
    report::show_text(&text, out)
}

/// The namespace; none if the driver cannot use it as it is formatted now.
fn identify(device: &Device, id: u32) -> Result<Option<Namespace>, ToolError> {
    match device.controller().namespace(id) {
        Ok(namespace) => Ok(Some(namespace)),
        Err(error) if error.kind() == Kind::Unsupported => Ok(None),
        Err(error) => Err(device_error(device.name(), "identifying the namespace")(
            error,
        )),
    }
}

/// The number of the format that it is to have, and the format in words.
fn new_format(
    device: &Device,
    id: u32,
    wanted: Option<usize>,
    before: Option<&Namespace>,
) -> Result<(usize, String), ToolError> {
    let usage = |context: String| ToolError::new(ErrorKind::Usage, context);
    match (wanted, before.map(Namespace::data)) {
        (None, None) => {
            let name = device.name();
            let context = format!("{name}: the format that namespace {id} has is not supported");
            Err(usage(context).advise("name another by --format"))
        }
        (Some(index), None) => Ok((index, format!("format {index}"))),
        (wanted, Some(data)) => {
            let index = wanted.unwrap_or(data.format);
            let format = data.formats.get(index).ok_or_else(|| {
                let last = data.formats.len() - 1;
                let context = format!("namespace {id} has formats 0 to {last}, not {index}");
                usage(context).advise(formats(data))
            })?;
            Ok((index, format!("format {index}, {}", format_text(*format))))
        }
    }
}

/// Which formats there are, on one line.
fn formats(data: &NamespaceData) -> String {
    let formats = data.formats.iter().enumerate();
    let texts = formats.map(|(index, format)| format!("{index}: {}", format_text(*format)));
    texts.collect::<Vec<String>>().join("; ")
}

/// The namespaces whose data is lost: some controllers format or erase all at once.
fn victims(device: &Device, id: u32, erase: Option<EraseChoice>) -> Result<Vec<u32>, ToolError> {
    let reach = device.data().format;
    let all = reach & FORMATS_ALL != 0 || erase.is_some() && reach & ERASES_ALL != 0;
    if all {
        device.namespace_ids()
    } else {
        Ok(vec![id])
    }
}

/// The error that says what would be lost.
fn refusal(device: &Device, victims: &[u32], new: &str) -> Result<ToolError, ToolError> {
    let mut lost = Vec::new();
    for id in victims {
        lost.push(match identify(device, *id)? {
            None => format!("namespace {id}"),
            Some(namespace) => {
                let used = u128::from(namespace.data().used) << namespace.block_shift();
                let size = namespace.size().into();
                format!(
                    "namespace {id}: {}, of which {} are in use",
                    bytes(size),
                    bytes(used)
                )
            }
        });
    }
    let context = format!(
        "{} was not formatted: all data would be lost of {}; the new one would be {new}",
        device.title(),
        lost.join(", of ")
    );
    Ok(ToolError::new(ErrorKind::NotForced, context).advise("--force does it"))
}
