//! The options and subcommands of features that this build lacks. They are refused, not ignored: a server that starts
//! does what its options say.

#[cfg(not(all(feature = "device", feature = "sockets")))]
use std::path::PathBuf;

#[cfg(not(feature = "device"))]
use super::DataPlace;
#[cfg(not(all(feature = "device", feature = "sockets")))]
use super::ServeOptions;
use super::SettingsError;

/// Where the data is to be: always a folder.
///
/// # Errors
/// An option for a device is given.
#[cfg(not(feature = "device"))]
pub(super) fn data_place(options: &ServeOptions) -> Result<DataPlace, SettingsError> {
    let given = [
        ("--device", options.device.is_some()),
        ("--format", options.format),
    ];
    if let Some((option, _)) = given.iter().find(|(_, is_given)| *is_given) {
        return Err(missing(option, "device"));
    }
    let folder = options.dbpath.clone();
    Ok(DataPlace::Folder(
        folder.unwrap_or_else(|| PathBuf::from("data")),
    ))
}

/// The path of the broker's socket: always `None`.
///
/// # Errors
/// An option for user-level sockets is given.
#[cfg(not(feature = "sockets"))]
pub(super) fn broker_path(options: &ServeOptions) -> Result<Option<PathBuf>, SettingsError> {
    let given = [
        ("--sockets", options.sockets.is_some()),
        (
            "net.userLevelSockets.broker",
            options.sockets_broker.is_some(),
        ),
        ("--socketSpinMicros", options.socket_spin_micros.is_some()),
    ];
    if let Some((option, _)) = given.iter().find(|(_, is_given)| *is_given) {
        return Err(missing(option, "sockets"));
    }
    Ok(None)
}

/// The refusal of `what`, an option or a subcommand that needs `feature`.
pub(super) fn missing(what: &str, feature: &str) -> SettingsError {
    SettingsError::Invalid(format!(
        "{what}: this needs the feature '{feature}', which this millrace was built without: build it \
         with `--features {feature}`"
    ))
}

#[cfg(all(test, not(all(feature = "device", feature = "sockets"))))]
mod tests {
    use clap::Parser;

    use super::super::{Cli, Settings, Subcommand};

    /// The refusal of options, and of a configuration file with the same meaning.
    fn refusal(arguments: &[&str]) -> String {
        let all = ["millrace", "serve"].iter().chain(arguments);
        let Subcommand::Serve(options) = Cli::try_parse_from(all).expect("known options").command
        else {
            unreachable!("the subcommand is serve");
        };
        let refused = Settings::resolve(*options, Vec::new());
        refused.expect_err("it is refused").to_string()
    }

    fn refusal_of_file(text: &str) -> String {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("millrace.yaml");
        std::fs::write(&path, text).expect("the folder is ours");
        refusal(&["--config", path.to_str().expect("the path is UTF-8")])
    }

    #[cfg(not(feature = "device"))]
    #[test]
    fn options_for_devices_are_refused_by_the_feature_that_is_missing() {
        for refused in [
            refusal(&["--device", "mem:64M"]),
            refusal(&["--device", "floppy:0", "--format"]),
            refusal(&["--format"]),
            refusal_of_file("storage: { device: 'mem:64M' }\n"),
        ] {
            assert!(
                refused.contains("this needs the feature 'device'"),
                "{refused}"
            );
        }
    }

    #[cfg(not(feature = "sockets"))]
    #[test]
    fn options_for_user_level_sockets_are_refused_by_the_feature_that_is_missing() {
        for refused in [
            refusal(&["--sockets"]),
            refusal(&["--sockets=/a/b"]),
            refusal(&["--socketSpinMicros", "0"]),
            refusal_of_file("net: { userLevelSockets: { enabled: true } }\n"),
            refusal_of_file("net: { userLevelSockets: { broker: /c/d } }\n"),
            refusal_of_file("net: { userLevelSockets: { spinMicros: 7 } }\n"),
        ] {
            assert!(
                refused.contains("this needs the feature 'sockets'"),
                "{refused}"
            );
        }
    }
}
