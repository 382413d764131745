//! What is asked of the controller as a whole, and what it says unasked.

use std::time::Duration;

use millrace_nvme::EventKind;

use super::{Bench, NOTHING};
use crate::failure::{Doing, Result, ensure};
use crate::report::Report;

/// Where the doorbells begin (Base 3.1.24).
const DOORBELLS: u64 = 0x1000;
/// "Write to Invalid Doorbell Register" (Base 5.2, figure 146).
const INVALID_DOORBELL: u8 = 0;
/// So long an event may take.
const EVENT_LIMIT: Duration = Duration::from_secs(30);

impl Bench<'_> {
    /// Health, log pages, features, events.
    pub(super) fn logs(&mut self, report: &mut Report) -> Result<()> {
        let health = self.controller.health().doing("read the health log")?;
        (self.say)(&format!(
            "health: {} K, {} % used, {} unsafe shutdowns, warnings {:?}",
            health.temperature,
            health.used,
            health.unsafe_shutdowns,
            health.warning_names(),
        ));
        if self.controller.data().volatile_cache {
            for used in [false, true] {
                self.controller
                    .set_cache_used(used)
                    .doing("switch the volatile cache")?;
                let is = self.controller.is_cache_used().doing("ask for the cache")?;
                ensure(is == used, || format!("volatile cache {is}, not {used}"))?;
            }
        }
        // The second one comes only if its kind was unmasked by reading the log, and asked for again.
        for _ in 0..2 {
            self.stray_doorbell()?;
            self.controller.errors(4).doing("read the error log")?;
            report.events += 1;
        }
        self.end_phase("logs, features, events of stray doorbells", &NOTHING)
    }

    /// Rings the last queue, which does not exist yet: the controller must say that it was rung.
    fn stray_doorbell(&mut self) -> Result<()> {
        let (before, _) = self.controller.take_events().doing("take events")?;
        ensure(before.is_empty(), || {
            format!("events for no reason: {before:?}")
        })?;
        let stride = self.controller.capabilities().doorbell_stride();
        let last = self.controller.queue_pairs_max() as u64;
        let bar = self.function.bar(0).doing("map registers")?;
        let doorbell = bar.register(DOORBELLS + 2 * last * stride);
        let rung = doorbell.and_then(|doorbell| doorbell.store_released(1));
        rung.doing("ring a doorbell")?;
        let start = self.host.now();
        let mut round = 0;
        let events = loop {
            let (events, lost) = self.controller.take_events().doing("take events")?;
            ensure(lost == 0, || format!("{lost} events were lost"))?;
            if !events.is_empty() {
                break events;
            }
            ensure(self.host.now().saturating_sub(start) < EVENT_LIMIT, || {
                "no event of a doorbell without a queue".into()
            })?;
            self.host.relax(round);
            round += 1;
        };
        let is_right = matches!(events[..], [event]
            if event.kind == EventKind::Error && event.information == INVALID_DOORBELL);
        ensure(is_right, || {
            format!("not the event of a stray doorbell: {events:?}")
        })
    }
}
