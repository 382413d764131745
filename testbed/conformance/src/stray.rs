//! A transfer that nobody allowed, made on purpose.

use std::time::Duration;

use millrace_nvme::Host;
use millrace_pci::Function;

use crate::failure::{Doing, Result, ensure};

/// Registers and bits of NVMe (Base 3.1), said here once more: no driver helps to do this.
const CONFIGURATION: u64 = 0x14;
const STATUS: u64 = 0x1c;
const ADMIN_ATTRIBUTES: u64 = 0x24;
const ADMIN_SUBMISSION: u64 = 0x28;
const ADMIN_COMPLETION: u64 = 0x30;
const ADMIN_DOORBELL: u64 = 0x1000;
const ENABLE: u32 = 1 << 0;
/// Entries of 64 and of 16 bytes.
const ENTRY_SIZES: u32 = 6 << 16 | 4 << 20;
const READY: u32 = 1 << 0;
const FATAL: u32 = 1 << 1;
/// So long a change of status may take.
const LIMIT: Duration = Duration::from_secs(30);

/// Has the controller read its admin queue at `address`, where nothing is mapped for it: an observer of its
/// transfers must report this one. Nothing drives the controller meanwhile.
///
/// # Errors
/// If the controller does not notice that it read nothing.
pub fn provoke_stray_read(function: &dyn Function, host: &dyn Host, address: u64) -> Result<()> {
    function
        .set_bus_master(true)
        .doing("allow it to reach memory")?;
    let bar = function.bar(0).doing("map registers")?;
    let store = |offset: u64, value: u32| {
        let register = bar.register(offset);
        let stored = register.and_then(|register| register.store_released(value));
        stored.doing("write a register")
    };
    let await_status = |what: &str, mask: u32, wanted: u32| {
        let status = bar.register(STATUS).doing("find the status")?;
        let start = host.now();
        let mut round = 0;
        while status.load().doing("read the status")? & mask != wanted {
            ensure(host.now().saturating_sub(start) < LIMIT, || {
                format!("the controller is not {what} after {LIMIT:?}")
            })?;
            host.relax(round);
            round += 1;
        }
        Ok(())
    };
    store(CONFIGURATION, 0)?;
    await_status("disabled", READY, 0)?;
    store(ADMIN_ATTRIBUTES, 0x1f_001f)?;
    for queue in [ADMIN_SUBMISSION, ADMIN_COMPLETION] {
        bar.store_long(queue, address).doing("write a register")?;
    }
    store(CONFIGURATION, ENABLE | ENTRY_SIZES)?;
    await_status("enabled", READY, READY)?;
    store(ADMIN_DOORBELL, 1)?;
    await_status("in trouble", FATAL, FATAL)?;
    store(CONFIGURATION, 0)?;
    await_status("disabled", READY, 0)
}
