//! Registers of a controller: enable, disable, shutdown, and status.

use std::sync::Arc;
use std::time::Duration;

use millrace_memory::Iova;
use millrace_pci::{Bar, Function, Register};

use crate::doorbell::Doorbell;
use crate::spec::registers::{
    ACQ, AQA, ASQ, CAP, CC, CQE_SHIFT, CSTS, Capabilities, DOORBELLS, GONE, SQE_SHIFT, VS, cc, csts,
};
use crate::{Error, ErrorKind, Host, Options, Result};

/// The class of NVMe controllers for I/O (PCI Code and ID Assignment, 01h 08h 02h).
const CLASS: u32 = 0x01_0802;
/// Least time granted to a normal shutdown, also if the controller reports none or less.
const SHUTDOWN_LIMIT_MIN: Duration = Duration::from_secs(10);
/// How long it may take in any case.
const SHUTDOWN_LIMIT_MAX: Duration = Duration::from_secs(120);

/// The registers, and what is needed to use them.
#[derive(Debug)]
pub(crate) struct Control {
    pub(crate) function: Arc<dyn Function>,
    pub(crate) host: Arc<dyn Host>,
    pub(crate) options: Options,
    pub(crate) capabilities: Capabilities,
    pub(crate) version: u32,
    /// log2 of the memory page that the controller is set to.
    pub(crate) page_shift: u32,
    bar: Arc<Bar>,
    configuration: Register,
    status: Register,
}

impl Control {
    pub(crate) fn new(
        function: Arc<dyn Function>,
        host: Arc<dyn Host>,
        options: Options,
    ) -> Result<Self> {
        let name = function.name().to_owned();
        let identity = function.identity()?;
        if identity.vendor == u16::MAX {
            return Err(Error::new(ErrorKind::Gone, name));
        }
        if identity.class != CLASS {
            let context = format!(
                "{name} has PCI class {:#08x}, not {CLASS:#08x}",
                identity.class
            );
            return Err(Error::new(ErrorKind::NotNvme, context));
        }
        // Register access is enabled here; bus mastering only once the controller is disabled. Until then it may still
        // execute commands of its former driver.
        function.set_bus_master(false)?;
        let bar = function.bar(0)?;
        let capabilities = Capabilities(bar.load_long(CAP)?);
        if capabilities.0 == u64::MAX {
            return Err(Error::new(ErrorKind::Gone, name));
        }
        if !capabilities.has_nvm_commands() {
            let context = format!("{name} does not have the NVM command set");
            return Err(Error::new(ErrorKind::Unsupported, context));
        }
        let page_shift = capabilities.page_shift_min();
        if page_shift > capabilities.page_shift_max() {
            let context = format!("{name} has a smallest page above its largest");
            return Err(Error::new(ErrorKind::Protocol, context));
        }
        if page_shift > 16 {
            let context = format!("{name} wants memory pages of 2^{page_shift} bytes");
            return Err(Error::new(ErrorKind::Unsupported, context));
        }
        if capabilities.queue_entries_max() < 2 {
            let context = format!("{name} has queues of one entry, which hold nothing");
            return Err(Error::new(ErrorKind::Protocol, context));
        }
        Ok(Self {
            version: bar.register(VS)?.load()?,
            configuration: bar.register(CC)?,
            status: bar.register(CSTS)?,
            function,
            host,
            options,
            capabilities,
            page_shift,
            bar,
        })
    }

    /// Bytes of the memory page that the controller is set to.
    pub(crate) const fn page(&self) -> u64 {
        1 << self.page_shift
    }

    /// The doorbells of queue `id`: submission, completion.
    pub(crate) fn doorbells(&self, id: u16) -> Result<(Doorbell, Doorbell)> {
        let stride = self.capabilities.doorbell_stride();
        let submission = DOORBELLS + u64::from(id) * 2 * stride;
        Ok((
            Doorbell::new(self.bar.register(submission)?),
            Doorbell::new(self.bar.register(submission + stride)?),
        ))
    }

    /// Fails if the controller was removed, reports a fatal status, or is no longer enabled.
    pub(crate) fn check_alive(&self) -> Result<()> {
        let status = self.status.load()?;
        if status == GONE {
            return Err(self.error(ErrorKind::Gone, "registers read as all ones"));
        }
        if status & csts::FATAL != 0 {
            return Err(self.error(ErrorKind::Failed, "controller fatal status"));
        }
        if status & csts::READY == 0 {
            return Err(self.error(ErrorKind::Failed, "no longer ready: it was reset by itself"));
        }
        Ok(())
    }

    /// Disables the controller: afterwards it has no queues and does not reach memory.
    pub(crate) fn disable(&self) -> Result<()> {
        let configuration = self.configuration.load()?;
        if configuration == GONE {
            return Err(self.error(ErrorKind::Gone, "registers read as all ones"));
        }
        if configuration & cc::ENABLE != 0 {
            // It must not be disabled while it is being enabled (Base 3.1.5); if it never gets ready
            // that is no reason to leave it so.
            let enabled = self.await_status("enabled", |status| {
                status & (csts::READY | csts::FATAL) != 0
            });
            if let Err(error) = enabled {
                if error.kind() != ErrorKind::TimedOut {
                    return Err(error);
                }
            }
            let mask = cc::ENABLE | cc::SHUTDOWN_MASK;
            self.configuration.store_released(configuration & !mask)?;
        }
        self.await_status("disabled", |status| status & csts::READY == 0)
    }

    /// Enables the controller with its admin queue at these addresses.
    pub(crate) fn enable(&self, entries: u16, submission: Iova, completion: Iova) -> Result<()> {
        let size = u32::from(entries) - 1;
        self.bar.register(AQA)?.store_released(size << 16 | size)?;
        self.bar.store_long(ASQ, submission.0)?;
        self.bar.store_long(ACQ, completion.0)?;
        let mut configuration = cc::ENABLE
            | (self.page_shift - 12) << cc::PAGE_SHIFT
            | SQE_SHIFT << cc::SQE_SIZE
            | CQE_SHIFT << cc::CQE_SIZE;
        if !self.capabilities.has_plain_nvm_commands() {
            configuration |= cc::ALL_COMMAND_SETS;
        }
        self.configuration.store_released(configuration)?;
        self.await_status("enabled", |status| {
            status & (csts::READY | csts::FATAL) != 0
        })?;
        self.check_alive()
    }

    /// Requests a normal shutdown, in which the controller flushes its cache. `said` is its reported maximum duration.
    pub(crate) fn shut_down(&self, said: Duration) -> Result<()> {
        let configuration = self.configuration.load()?;
        if configuration == GONE || configuration & cc::ENABLE == 0 {
            return Ok(());
        }
        let configuration = configuration & !cc::SHUTDOWN_MASK | cc::SHUTDOWN;
        self.configuration.store_released(configuration)?;
        let limit = said.clamp(SHUTDOWN_LIMIT_MIN, SHUTDOWN_LIMIT_MAX);
        self.await_status_for("shut down", limit, |status| {
            status & csts::SHUTDOWN_MASK == csts::SHUTDOWN_DONE
        })
    }

    fn await_status(&self, what: &str, reached: impl Fn(u32) -> bool) -> Result<()> {
        self.await_status_for(what, self.capabilities.ready_timeout(), reached)
    }

    fn await_status_for(
        &self,
        what: &str,
        limit: Duration,
        reached: impl Fn(u32) -> bool,
    ) -> Result<()> {
        let start = self.host.now();
        let mut round = 0;
        loop {
            // Before the look at the status: this thread may be stopped in between, which is not the
            // controller's fault.
            let is_late = self.host.now().saturating_sub(start) > limit;
            let status = self.status.load()?;
            if status == GONE {
                return Err(self.error(ErrorKind::Gone, "registers read as all ones"));
            }
            if reached(status) {
                return Ok(());
            }
            if is_late {
                let context = format!("not {what} after {} ms", limit.as_millis());
                return Err(self.error(ErrorKind::TimedOut, &context));
            }
            self.host.rest(round);
            round = round.saturating_add(1);
        }
    }

    pub(crate) fn error(&self, kind: ErrorKind, context: &str) -> Error {
        Error::new(kind, format!("{}: {context}", self.function.name()))
    }
}
