//! The options of a server whose data is on a device.

use std::path::PathBuf;

use millrace_block::Spec;

use super::{DataPlace, ServeOptions, SettingsError};

/// A device that holds a volume, as `--device` names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceSettings {
    /// The device, as `--device` gives it.
    pub spec: Spec,
    /// Whether a volume is made on it if it is blank.
    pub format: bool,
}

/// Where the data is to be: a folder, or a device.
///
/// # Errors
/// The option that contradicts another one, or whose value names no device.
pub(super) fn data_place(options: &ServeOptions) -> Result<DataPlace, SettingsError> {
    let format = options.format;
    match (&options.dbpath, &options.device) {
        (Some(_), Some(_)) => Err(SettingsError::Invalid(
            "the data is either in a folder (--dbpath) or on a device (--device): which one?"
                .to_owned(),
        )),
        (folder, None) if !format => {
            let folder = folder.clone().unwrap_or_else(|| PathBuf::from("data"));
            Ok(DataPlace::Folder(folder))
        }
        (_, None) => Err(SettingsError::Invalid(
            "--format is for a device: name it by --device".to_owned(),
        )),
        (None, Some(text)) => {
            let spec = text
                .parse()
                .map_err(|error| SettingsError::Invalid(format!("--device {text}: {error}")))?;
            Ok(DataPlace::Device(DeviceSettings { spec, format }))
        }
    }
}
