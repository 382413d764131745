//! `millrace nvme smart`.

use millrace_nvme::spec::identify::ControllerData;
use millrace_nvme::spec::log::{ErrorEntry, Health};
use serde_json::{Value, json};

use super::Device;
use super::device::title;
use super::error::device_error;
use crate::ToolError;
use crate::terminal::Report;
use crate::terminal::quantity::{bytes, celsius, grouped};
use crate::terminal::{Section, Side, Table, number};

/// Data is counted in thousands of 512 bytes (Base 1.4, figure 194).
const DATA_UNIT_BYTES: u128 = 512_000;
/// The most entries of the error log that are asked for.
const ERRORS_MAX: usize = 64;
/// What stands in an entry for no queue, no command or no namespace in particular.
const NONE_IN_PARTICULAR: u16 = u16::MAX;

/// Health of a device, with its error log on request.
#[derive(Clone, Debug)]
pub struct SmartReport {
    /// Name of the device in messages: PCI address, or `vfio-user:` and the socket's path.
    pub name: String,
    /// Identify Controller data of the controller.
    pub controller: ControllerData,
    /// SMART / Health Information log page of the controller.
    pub health: Health,
    /// Error Information log, the newest entry first, at most 64; `None` if it was not requested.
    pub errors: Option<Vec<ErrorEntry>>,
}

impl SmartReport {
    /// Report read from a device, with its error log if `with_errors` is set.
    ///
    /// # Errors
    /// [`ErrorKind::Device`](crate::ErrorKind::Device) if a command fails.
    pub fn new(device: &Device, with_errors: bool) -> Result<Self, ToolError> {
        let controller = device.controller();
        let health = controller
            .health()
            .map_err(device_error(device.name(), "reading its health"))?;
        let errors = with_errors
            .then(|| controller.errors(ERRORS_MAX))
            .transpose()
            .map_err(device_error(device.name(), "reading its error log"))?;
        Ok(Self {
            name: device.name().to_owned(),
            controller: device.data().clone(),
            health,
            errors,
        })
    }

    /// Warnings about the device in English, one each; empty if it is healthy.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let health = &self.health;
        let mut warnings: Vec<String> = health
            .warning_names()
            .into_iter()
            .map(str::to_owned)
            .collect();
        if health.used >= 100 {
            warnings.push(format!(
                "{} % of the life it is rated for is used",
                health.used
            ));
        }
        if health.media_errors > 0 {
            let count = grouped(health.media_errors);
            warnings.push(format!("data could not be recovered {count} times"));
        }
        warnings
    }

    fn health_text(&self) -> String {
        let health = &self.health;
        let mut section = Section::new(title(&self.name, &self.controller));
        let warnings = self.warnings();
        if warnings.is_empty() {
            section.row("state", "healthy");
        }
        for warning in warnings {
            section.row("WARNING", warning);
        }
        let degrees = |kelvin| {
            let degrees = celsius(kelvin).map(|degrees| format!("{degrees} °C"));
            degrees.unwrap_or_else(|| "not reported".to_owned())
        };
        section.row("temperature", degrees(health.temperature));
        for (kelvin, number) in health.sensors.iter().zip(1..) {
            if let Some(kelvin) = kelvin {
                section.row(format!("sensor {number}"), degrees(*kelvin));
            }
        }
        let spare = format!(
            "{} % (low below {} %)",
            health.spare, health.spare_threshold
        );
        section.row("spare", spare);
        section.row("life used", format!("{} %", health.used));
        let data = |units: u128| bytes(units.saturating_mul(DATA_UNIT_BYTES));
        section.row("data read", data(health.data_read));
        section.row("data written", data(health.data_written));
        section.row("read commands", grouped(health.reads));
        section.row("write commands", grouped(health.writes));
        section.row("busy", format!("{} minutes", grouped(health.busy_minutes)));
        section.row(
            "with power",
            format!("{} hours", grouped(health.power_on_hours)),
        );
        section.row("power cycles", grouped(health.power_cycles));
        section.row("power lost unawares", grouped(health.unsafe_shutdowns));
        section.row("media errors", grouped(health.media_errors));
        section.row("error log entries", grouped(health.error_entries));
        let minutes = |minutes: u32| format!("{} minutes", grouped(minutes.into()));
        section.row("above warning", minutes(health.warning_minutes));
        section.row("above critical", minutes(health.critical_minutes));
        section.text()
    }
}

fn errors_text(errors: &[ErrorEntry]) -> String {
    if errors.is_empty() {
        return "The error log is empty.\n".to_owned();
    }
    let mut table = Table::new(&[
        ("ERROR", Side::Right),
        ("QUEUE", Side::Right),
        ("COMMAND", Side::Right),
        ("NAMESPACE", Side::Right),
        ("BLOCK", Side::Right),
        ("STATUS", Side::Left),
    ]);
    let or_dash = |id: u16| match id {
        NONE_IN_PARTICULAR => "-".to_owned(),
        id => id.to_string(),
    };
    for error in errors {
        table.row(vec![
            error.number.to_string(),
            or_dash(error.queue),
            or_dash(error.command),
            match error.namespace {
                0 | u32::MAX => "-".to_owned(),
                id => id.to_string(),
            },
            error.block.to_string(),
            error.status.to_string(),
        ]);
    }
    table.text()
}

fn error_json(error: &ErrorEntry) -> Value {
    json!({
        "number": error.number,
        "queue": (error.queue != NONE_IN_PARTICULAR).then_some(error.queue),
        "command": (error.command != NONE_IN_PARTICULAR).then_some(error.command),
        "namespace": (!matches!(error.namespace, 0 | u32::MAX)).then_some(error.namespace),
        "block": error.block,
        "status": format!("{:#06x}", error.status.0),
        "status_name": error.status.name(),
    })
}

impl Report for SmartReport {
    fn text(&self) -> String {
        let health = self.health_text();
        match &self.errors {
            None => health,
            Some(errors) => format!("{health}\n{}", errors_text(errors)),
        }
    }

    fn json(&self) -> Value {
        let health = &self.health;
        // As far as there are any: the first is sensor 1.
        let count = health.sensors.iter().rposition(Option::is_some);
        let sensors = &health.sensors[..count.map_or(0, |last| last + 1)];
        let sensors = sensors.iter().map(|kelvin| kelvin.and_then(celsius));
        let errors = self.errors.as_ref();
        let errors = errors.map(|errors| errors.iter().map(error_json).collect::<Vec<Value>>());
        let data = |units: u128| number(units.saturating_mul(DATA_UNIT_BYTES));
        json!({
            "device": self.name,
            "model": self.controller.model,
            "serial": self.controller.serial,
            "healthy": self.warnings().is_empty(),
            "warnings": self.warnings(),
            "critical_warning_bits": health.warnings,
            "temperature_celsius": celsius(health.temperature),
            "sensors_celsius": sensors.collect::<Vec<_>>(),
            "spare_percent": health.spare,
            "spare_threshold_percent": health.spare_threshold,
            "used_percent": health.used,
            "data_read_bytes": data(health.data_read),
            "data_written_bytes": data(health.data_written),
            "read_commands": number(health.reads),
            "write_commands": number(health.writes),
            "busy_minutes": number(health.busy_minutes),
            "power_cycles": number(health.power_cycles),
            "power_on_hours": number(health.power_on_hours),
            "unsafe_shutdowns": number(health.unsafe_shutdowns),
            "media_errors": number(health.media_errors),
            "error_log_entries": number(health.error_entries),
            "above_warning_minutes": health.warning_minutes,
            "above_critical_minutes": health.critical_minutes,
            "errors": errors,
        })
    }
}
