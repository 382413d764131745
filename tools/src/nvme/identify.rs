//! `millrace nvme identify`.

use millrace_nvme::spec::identify::{BlockFormat, ControllerData, NamespaceData};
use millrace_nvme::{Controller, ErrorKind as Kind};
use serde_json::{Value, json};

use super::Device;
use super::device::title;
use super::error::device_error;
use crate::ToolError;
use crate::terminal::Report;
use crate::terminal::quantity::{bytes, celsius, grouped, power_of_two_size};
use crate::terminal::{Section, number};

/// A namespace: its data, or why the driver cannot use it.
#[derive(Clone, Debug)]
pub struct NamespaceReport {
    /// Id of the namespace, from 1.
    pub id: u32,
    /// Identify Namespace data, or the reason why the driver cannot use the namespace.
    pub data: Result<NamespaceData, String>,
}

/// Identify data and driver limits of a controller, with its namespaces.
#[derive(Clone, Debug)]
pub struct IdentifyReport {
    /// Name of the device in messages: PCI address, or `vfio-user:` and the socket's path.
    pub name: String,
    /// Identify Controller data of the controller.
    pub controller: ControllerData,
    /// Version of the NVMe specification: `major << 16 | minor << 8 | tertiary`.
    pub version: u32,
    /// Longest transfer of one command, in bytes.
    pub transfer_max: u64,
    /// Number of I/O queue pairs that the controller granted to the driver.
    pub queue_pairs: usize,
    /// Whether the volatile write cache is on; `None` if there is none, or the controller does not report it.
    pub cache_used: Option<bool>,
    /// Whether the doorbells are mapped into this process; if not, each doorbell write is a call.
    pub doorbells_mapped: bool,
    /// The requested namespaces: all active ones, or one.
    pub namespaces: Vec<NamespaceReport>,
}

impl IdentifyReport {
    /// Report read from a device, with one namespace or all active ones.
    ///
    /// # Errors
    /// If it does not answer, or the one namespace is not there.
    pub fn new(device: &Device, namespace: Option<u32>) -> Result<Self, ToolError> {
        let controller = device.controller();
        let ids = match namespace {
            Some(id) => vec![id],
            None => device.namespace_ids()?,
        };
        let namespaces = ids
            .into_iter()
            .map(|id| namespace_report(device, id, namespace.is_some()))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            name: device.name().to_owned(),
            controller: device.data().clone(),
            version: controller.version(),
            transfer_max: controller.transfer_max(),
            queue_pairs: controller.queue_pairs_max(),
            cache_used: cache_used(device.name(), controller)?,
            doorbells_mapped: device.doorbells_mapped(),
            namespaces,
        })
    }
}

fn namespace_report(device: &Device, id: u32, is_only: bool) -> Result<NamespaceReport, ToolError> {
    let data = match device.controller().namespace(id) {
        Ok(namespace) => Ok(namespace.data().clone()),
        // It is there all the same.
        Err(error) if error.kind() == Kind::Unsupported => Err(error.to_string()),
        // It went away since the list was read.
        Err(error) if error.kind() == Kind::NoNamespace && !is_only => Err(error.to_string()),
        Err(error) => {
            return Err(device_error(device.name(), "identifying the namespace")(
                error,
            ));
        }
    };
    Ok(NamespaceReport { id, data })
}

fn cache_used(name: &str, controller: &Controller) -> Result<Option<bool>, ToolError> {
    if !controller.data().volatile_cache {
        return Ok(None);
    }
    match controller.is_cache_used() {
        Ok(used) => Ok(Some(used)),
        Err(error) if error.kind() == Kind::Command => Ok(None),
        Err(error) => Err(device_error(name, "asking for its write cache")(error)),
    }
}

/// What deallocated blocks read as (DLFEAT).
const fn deallocated(data: &NamespaceData) -> Option<&'static str> {
    match data.deallocated {
        1 => Some("zeroes"),
        2 => Some("ones"),
        _ => None,
    }
}

const fn performance(format: BlockFormat) -> &'static str {
    match format.performance {
        0 => "best",
        1 => "better",
        2 => "good",
        _ => "degraded",
    }
}

/// Bytes of a block of a format; none if the size cannot be.
fn block_size(format: BlockFormat) -> Option<u64> {
    1_u64.checked_shl(u32::from(format.block_shift))
}

/// Bytes of so many blocks.
fn size(blocks: u64, data: &NamespaceData) -> u128 {
    let block = block_size(data.block_format()).unwrap_or(0);
    u128::from(blocks) * u128::from(block)
}

/// A format in words: `4 KiB blocks, best performance`.
pub(super) fn format_text(format: BlockFormat) -> String {
    let size = block_size(format).map_or_else(|| "?".to_owned(), power_of_two_size);
    let metadata = match format.metadata {
        0 => String::new(),
        bytes => format!(" + {bytes} bytes of metadata (not supported)"),
    };
    format!(
        "blocks of {size}{metadata}, {} performance",
        performance(format)
    )
}

/// Blocks less one, as the specification counts them.
fn blocks_text(less_one: u16) -> String {
    match u32::from(less_one) + 1 {
        1 => "1 block".to_owned(),
        blocks => format!("{} blocks", grouped(blocks.into())),
    }
}

impl IdentifyReport {
    fn version_text(&self) -> String {
        let (major, minor, tertiary) = (
            self.version >> 16,
            self.version >> 8 & 0xff,
            self.version & 0xff,
        );
        match tertiary {
            0 => format!("{major}.{minor}"),
            tertiary => format!("{major}.{minor}.{tertiary}"),
        }
    }

    /// Optional commands that it has and this driver uses.
    fn commands(&self) -> Vec<&'static str> {
        let controller = &self.controller;
        [
            (controller.has_compare(), "compare"),
            (controller.has_write_zeroes(), "write zeroes"),
            (controller.has_dataset_management(), "deallocate"),
            (controller.has_format(), "format"),
            (controller.has_doorbell_buffers(), "shadow doorbells"),
        ]
        .into_iter()
        .filter(|(has, _)| *has)
        .map(|(_, name)| name)
        .collect()
    }

    fn cache_text(&self) -> &'static str {
        match (self.controller.volatile_cache, self.cache_used) {
            (false, _) => "none that loses data with power",
            (true, Some(true)) => "volatile, on: only flushed data survives a power failure",
            (true, Some(false)) => "volatile, off",
            (true, None) => "volatile",
        }
    }

    fn controller_text(&self) -> String {
        let controller = &self.controller;
        let mut section = Section::new(title(&self.name, controller));
        section.row("firmware", &*controller.firmware);
        section.row("vendor", format!("{:#06x}", controller.vendor));
        section.row("controller id", controller.controller.to_string());
        section.row("NVMe version", self.version_text());
        if controller.capacity > 0 {
            section.row("capacity", bytes(controller.capacity));
        }
        section.row("longest command", power_of_two_size(self.transfer_max));
        section.row("queue pairs", self.queue_pairs.to_string());
        let doorbells = match self.doorbells_mapped {
            true => "mapped",
            false => "reached by calls, which are slow",
        };
        section.row("doorbells", doorbells);
        section.row("write cache", self.cache_text());
        let commands = self.commands();
        let commands = match commands.is_empty() {
            true => "none".to_owned(),
            false => commands.join(", "),
        };
        section.row("optional commands", commands);
        let lists = if controller.has_sgl() { "yes" } else { "no" };
        section.row("scatter-gather lists", lists);
        let temperatures = [
            ("warns at", controller.temperature_warning),
            ("critical at", controller.temperature_critical),
        ];
        for (name, kelvin) in temperatures {
            if let Some(degrees) = celsius(kelvin) {
                section.row(name, format!("{degrees} °C"));
            }
        }
        if !controller.qualified_name.is_empty() {
            section.row("qualified name", &*controller.qualified_name);
        }
        section.text()
    }

    fn controller_json(&self) -> Value {
        let controller = &self.controller;
        json!({
            "model": controller.model,
            "serial": controller.serial,
            "firmware": controller.firmware,
            "vendor": format!("{:#06x}", controller.vendor),
            "controller_id": controller.controller,
            "version": self.version_text(),
            "capacity_bytes": (controller.capacity > 0).then(|| number(controller.capacity)),
            "transfer_bytes_max": self.transfer_max,
            "queue_pairs_max": self.queue_pairs,
            "doorbells_mapped": self.doorbells_mapped,
            "volatile_write_cache": controller.volatile_cache,
            "volatile_write_cache_on": self.cache_used,
            "commands": self.commands(),
            "scatter_gather": controller.has_sgl(),
            "temperature_warning_celsius": celsius(controller.temperature_warning),
            "temperature_critical_celsius": celsius(controller.temperature_critical),
            "qualified_name": controller.qualified_name,
        })
    }
}

impl NamespaceReport {
    fn text(&self, controller: &ControllerData) -> String {
        let mut section = Section::new(format!("Namespace {}", self.id));
        let data = match &self.data {
            Ok(data) => data,
            Err(reason) => {
                section.row("cannot be used", &**reason);
                return section.text();
            }
        };
        section.row("size", bytes(size(data.blocks, data)));
        section.row("in use", bytes(size(data.used, data)));
        section.row("blocks", grouped(data.blocks.into()));
        for (index, format) in data.formats.iter().enumerate() {
            let current = if index == data.format { ", in use" } else { "" };
            let text = format!("{}{current}", format_text(*format));
            section.row(format!("format {index}"), text);
        }
        let whole = data.atomic_write.unwrap_or(controller.atomic_write);
        let kept = data.atomic_write_power_fail;
        let kept = kept.unwrap_or(controller.atomic_write_power_fail);
        section.row("atomic write", blocks_text(whole));
        section.row("at power failure", blocks_text(kept));
        if data.atomic_boundary > 0 {
            let blocks = blocks_text(data.atomic_boundary);
            section.row("atomic up to", format!("multiples of {blocks}"));
        }
        if data.optimal_boundary > 0 {
            let blocks = grouped(data.optimal_boundary.into());
            section.row("best not across", format!("multiples of {blocks} blocks"));
        }
        section.row("deallocated reads", deallocated(data).unwrap_or("unsaid"));
        if data.eui64 > 0 {
            section.row("EUI-64", format!("{:016x}", data.eui64));
        }
        if data.nguid > 0 {
            section.row("NGUID", format!("{:032x}", data.nguid));
        }
        section.text()
    }

    fn json(&self, controller: &ControllerData) -> Value {
        let data = match &self.data {
            Ok(data) => data,
            Err(reason) => return json!({ "id": self.id, "unusable": reason }),
        };
        let formats = data.formats.iter().map(|format| {
            json!({
                "block_bytes": block_size(*format),
                "metadata_bytes": format.metadata,
                "performance": performance(*format),
            })
        });
        let blocks = |own: Option<u16>, common: u16| u32::from(own.unwrap_or(common)) + 1;
        let kept = controller.atomic_write_power_fail;
        json!({
            "id": self.id,
            "size_bytes": number(size(data.blocks, data)),
            "used_bytes": number(size(data.used, data)),
            "blocks": data.blocks,
            "block_bytes": block_size(data.block_format()),
            "format": data.format,
            "formats": formats.collect::<Vec<Value>>(),
            "atomic_write_blocks": blocks(data.atomic_write, controller.atomic_write),
            "atomic_write_power_fail_blocks": blocks(data.atomic_write_power_fail, kept),
            "atomic_boundary_blocks":
                (data.atomic_boundary > 0).then(|| u32::from(data.atomic_boundary) + 1),
            "optimal_boundary_blocks": (data.optimal_boundary > 0).then_some(data.optimal_boundary),
            "deallocated_reads": deallocated(data),
            "eui64": (data.eui64 > 0).then(|| format!("{:016x}", data.eui64)),
            "nguid": (data.nguid > 0).then(|| format!("{:032x}", data.nguid)),
        })
    }
}

impl Report for IdentifyReport {
    fn text(&self) -> String {
        let namespaces = self.namespaces.iter();
        let namespaces = namespaces.map(|namespace| namespace.text(&self.controller));
        let parts = std::iter::once(self.controller_text()).chain(namespaces);
        parts.collect::<Vec<String>>().join("\n")
    }

    fn json(&self) -> Value {
        let namespaces = self.namespaces.iter();
        let namespaces = namespaces.map(|namespace| namespace.json(&self.controller));
        json!({
            "device": self.name,
            "controller": self.controller_json(),
            "namespaces": namespaces.collect::<Vec<Value>>(),
        })
    }
}
