//! What is asked of the controller as a whole, by commands of the admin queue.

use std::sync::Arc;
use std::time::Duration;

use millrace_memory::{
    Arena, ArenaOptions, DeviceMemory, DeviceWords, Domain, Iova, Pages, SizeClass,
};

use crate::admin::{ADMIN_ENTRIES, AdminQueue};
use crate::control::Control;
use crate::doorbell::{Shadow, Shadows};
use crate::events::AsyncEvent;
use crate::rings::{CompletionRing, SubmissionRing};
use crate::spec::command::{Command, Pointer, admin, feature};
use crate::spec::identify::{
    CommandLimits, ControllerData, IDENTIFY_SIZE, NamespaceData, cns, parse_namespace_list,
};
use crate::spec::log::page;
use crate::spec::registers::VERSION_2;
use crate::spec::status::Status;
use crate::{Error, ErrorKind, Result};

/// The most event requests that are made.
const EVENT_REQUESTS_MAX: usize = 4;
/// The most aborts that are under way: the admin queue has room for them besides everything else.
const ABORTS_MAX: usize = 8;
/// All health warnings (Base 5.21.1.11).
const HEALTH_EVENTS: u32 = 0x3f;
/// Health events that every controller supports.
const HEALTH_EVENTS_ALWAYS: u32 = 0x1f;
/// Namespace attribute notices, in the same field and in OAES.
const NAMESPACE_NOTICES: u32 = 1 << 8;
/// The most namespaces that are looked at one by one, of a controller that cannot list them.
const NAMESPACES_SCANNED_MAX: u32 = 1024;
/// Bytes of a log page that is read only to have its event again.
const LOG_SHORT: usize = 512;

/// Where one I/O queue's rings are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueuePlace {
    pub(crate) id: u16,
    pub(crate) submission: (Iova, u16),
    pub(crate) completion: (Iova, u16),
    /// The interrupt vector, if it has one.
    pub(crate) vector: Option<u16>,
}

/// What a controller is found to be once it is enabled.
#[derive(Debug)]
pub(crate) struct Brought {
    pub(crate) data: ControllerData,
    pub(crate) limits: CommandLimits,
    /// How many I/O queues it gives.
    pub(crate) queues: u16,
}

/// The admin queue and the memory that its commands use.
#[derive(Debug)]
pub(crate) struct Admin {
    arena: Arena,
    queue: AdminQueue,
    scratch: DeviceMemory,
    shadows: Shadows,
    shadows_used: bool,
    /// Setting of the volatile write cache, if the caller chose one: set again after a reset.
    cache_setting: Option<bool>,
    /// Whether there is a volatile write cache that is used.
    is_cache_used: bool,
    /// Which I/O queues are given out; the first is queue 1.
    pub(crate) queues_taken: Vec<bool>,
}

impl Admin {
    /// Memory of one device page each for both rings, data, and the two kinds of shadow doorbells.
    pub(crate) fn new(control: &Control, domain: &Arc<dyn Domain>) -> Result<Self> {
        let page = usize::try_from(control.page()).expect("no more than 64 KiB");
        let options = ArenaOptions {
            classes: vec![SizeClass {
                size: page,
                count: 5,
            }],
            pages: Pages::Base,
            node: None,
            locked: true,
        };
        let arena = Arena::new(Arc::clone(domain), &options)?;
        let take = || take_memory(&arena, page, control.page());
        let (submission, completion) = control.doorbells(0)?;
        let queue = AdminQueue::new(
            SubmissionRing::new(take()?, ADMIN_ENTRIES, submission),
            CompletionRing::new(take()?, ADMIN_ENTRIES, completion),
        );
        let shadows = Shadows {
            values: Arc::new(DeviceWords::new(take()?)),
            events: Arc::new(DeviceWords::new(take()?)),
        };
        let scratch = take()?;
        Ok(Self {
            queue,
            scratch,
            shadows,
            shadows_used: false,
            cache_setting: None,
            is_cache_used: false,
            queues_taken: Vec::new(),
            arena,
        })
    }

    /// Gives the memory up, mapped and locked as it is: the controller may still write there.
    pub(crate) fn give_up(&self) {
        std::mem::forget(self.arena.clone());
    }

    /// Enables the controller, which is disabled, and sets it up.
    pub(crate) fn bring_up(&mut self, control: &Control) -> Result<Brought> {
        self.queue.restart();
        let submission = self.queue.submission().memory().iova();
        let completion = self.queue.completion().memory().iova();
        control.enable(ADMIN_ENTRIES, submission, completion)?;
        let data = ControllerData::parse(&self.identify(control, cns::CONTROLLER, 0)?)?;
        let fits = |sizes: u8, shift: u32| {
            (u32::from(sizes & 0xf)..=u32::from(sizes >> 4)).contains(&shift)
        };
        if !fits(data.sqe_sizes, 6) || !fits(data.cqe_sizes, 4) {
            let context = "queue entries are not of 64 and 16 bytes";
            return Err(control.error(ErrorKind::Unsupported, context));
        }
        let limits = self.command_limits(control)?;
        let queues = self.ask_for_queues(control)?;
        self.shadows_used = control.options.shadow_doorbells
            && data.has_doorbell_buffers()
            && self.shadows_fit(control, queues);
        if self.shadows_used {
            self.shadows_used = self.offer_shadows(control)?;
        }
        self.queue
            .set_aborts_max((usize::from(data.aborts) + 1).min(ABORTS_MAX));
        let notices = data.events & NAMESPACE_NOTICES;
        self.enable_events(control, notices, usize::from(data.event_requests) + 1)?;
        self.is_cache_used = data.volatile_cache && self.set_cache(control)?;
        Ok(Brought {
            data,
            limits,
            queues,
        })
    }

    /// Sets the volatile write cache as the caller chose. Whether it is enabled.
    fn set_cache(&mut self, control: &Control) -> Result<bool> {
        if let Some(used) = self.cache_setting {
            self.set_cache_used(control, used)?;
            return Ok(used);
        }
        match self.feature(control, feature::VOLATILE_WRITE_CACHE) {
            Ok(value) => Ok(value & 1 == 1),
            // The feature is not supported: an existing cache is enabled.
            Err(error) if error.kind() == ErrorKind::Command => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Limits of commands that transfer no data; none if the controller's version predates them.
    fn command_limits(&mut self, control: &Control) -> Result<CommandLimits> {
        if control.version < VERSION_2 {
            return Ok(CommandLimits::default());
        }
        match self.identify(control, cns::NVM_CONTROLLER, 0) {
            Ok(bytes) => CommandLimits::parse(&bytes),
            Err(error) if error.kind() == ErrorKind::Command => Ok(CommandLimits::default()),
            Err(error) => Err(error),
        }
    }

    fn ask_for_queues(&mut self, control: &Control) -> Result<u16> {
        let wanted = u32::from(control.options.queue_pairs_max.clamp(1, 4096)) - 1;
        let number = feature::NUMBER_OF_QUEUES;
        let given = self.set_feature(control, number, wanted | wanted << 16)?;
        let least = (given & 0xffff).min(given >> 16).min(wanted);
        Ok(u16::try_from(least).expect("no more than was asked for") + 1)
    }

    /// Whether the shadows of all queues fit into their page: the controller writes those of queues that it
    /// gave, whether they are used or not.
    fn shadows_fit(&self, control: &Control, queues: u16) -> bool {
        let stride = control.capabilities.doorbell_stride();
        (u64::from(queues) + 1) * 2 * stride <= control.page()
    }

    /// Offers shadow doorbells; false if the controller does not want them after all.
    fn offer_shadows(&mut self, control: &Control) -> Result<bool> {
        let pointer = Pointer::Prp(self.shadows.values.iova(), self.shadows.events.iova().0);
        let command = Command::new(admin::DOORBELL_BUFFERS, 0).with_pointer(pointer);
        optional(self.execute(control, "set up shadow doorbells", command))
    }

    fn enable_events(&mut self, control: &Control, notices: u32, requests: usize) -> Result<()> {
        // A controller that supports fewer events rejects the command; its default events are enough.
        for events in [
            HEALTH_EVENTS | notices,
            HEALTH_EVENTS_ALWAYS | notices,
            HEALTH_EVENTS_ALWAYS,
        ] {
            if optional(self.set_feature(control, feature::ASYNC_EVENTS, events))? {
                break;
            }
        }
        self.queue.request_events(requests.min(EVENT_REQUESTS_MAX))
    }

    /// The shadows of a queue that is to be made, cleared: of its submission ring, of its completion ring.
    fn clear_shadows(&self, control: &Control, id: u16) -> [Option<Shadow>; 2] {
        let stride = usize::try_from(control.capabilities.doorbell_stride()).expect("2^17 at most");
        let first = usize::from(id) * 2 * stride;
        let clear = |offset| self.shadows_used.then(|| self.shadows.clear(offset));
        [clear(first), clear(first + stride)]
    }

    /// Makes an I/O queue's two rings known to the controller.
    pub(crate) fn create_queue(
        &mut self,
        control: &Control,
        place: &QueuePlace,
    ) -> Result<[Option<Shadow>; 2]> {
        let shadows = self.clear_shadows(control, place.id);
        let contiguous = 1;
        let id = u32::from(place.id);
        let (iova, entries) = place.completion;
        let interrupts = place
            .vector
            .map_or(0, |vector| 1 << 1 | u32::from(vector) << 16);
        let command = Command::new(admin::CREATE_CQ, 0)
            .with_pointer(Pointer::Prp(iova, 0))
            .with_10_11(id | (u32::from(entries) - 1) << 16, contiguous | interrupts);
        self.execute(control, "create a completion queue", command)?;
        let (iova, entries) = place.submission;
        let command = Command::new(admin::CREATE_SQ, 0)
            .with_pointer(Pointer::Prp(iova, 0))
            .with_10_11(id | (u32::from(entries) - 1) << 16, contiguous | id << 16);
        let created = self.execute(control, "create a submission queue", command);
        let refused = |error: &Error| error.kind() == ErrorKind::Command;
        if created.as_ref().is_err_and(refused) {
            let command = Command::new(admin::DELETE_CQ, 0).with_10_11(id, 0);
            let deleted = self.execute(control, "delete a completion queue", command);
            // The controller keeps a ring whose memory will be freed: only a reset makes it release the ring.
            deleted.inspect_err(|error| self.queue.break_off(error))?;
        }
        created.map(|_| shadows)
    }

    /// Takes an I/O queue from the controller: afterwards it does not reach what its commands named.
    pub(crate) fn delete_queue(&mut self, control: &Control, id: u16) -> Result<()> {
        for (what, opcode) in [
            ("delete a submission queue", admin::DELETE_SQ),
            ("delete a completion queue", admin::DELETE_CQ),
        ] {
            let command = Command::new(opcode, 0).with_10_11(u32::from(id), 0);
            self.execute(control, what, command)?;
        }
        Ok(())
    }

    /// The ids of namespaces that can be used.
    pub(crate) fn namespaces(&mut self, control: &Control, highest: u32) -> Result<Vec<u32>> {
        let mut all = Vec::new();
        loop {
            let last = all.last().copied().unwrap_or(0);
            let page = match self.identify(control, cns::ACTIVE_NAMESPACES, last) {
                Ok(bytes) => parse_namespace_list(&bytes, last)?,
                Err(error) if error.kind() == ErrorKind::Command && all.is_empty() => {
                    return self.scan_namespaces(control, highest);
                }
                Err(error) => return Err(error),
            };
            let full = page.len() == IDENTIFY_SIZE / 4;
            all.extend(page);
            if !full || all.len() > 1 << 20 {
                return Ok(all);
            }
        }
    }

    /// Active namespaces of a controller of version 1.0, which has no list.
    fn scan_namespaces(&mut self, control: &Control, highest: u32) -> Result<Vec<u32>> {
        let mut found = Vec::new();
        for id in 1..=highest.min(NAMESPACES_SCANNED_MAX) {
            match self.namespace(control, id) {
                Ok(Some(_)) => found.push(id),
                Ok(None) => {}
                // Those that have no list are not agreed on the status of what is not there.
                Err(error) if error.kind() == ErrorKind::Command => {}
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    /// Identify data of a namespace; none if it is not active.
    pub(crate) fn namespace(
        &mut self,
        control: &Control,
        id: u32,
    ) -> Result<Option<NamespaceData>> {
        match self.identify(control, cns::NAMESPACE, id) {
            // Inactive ones are all zero (Base 5.15.2.1).
            Ok(bytes) if bytes.iter().all(|byte| *byte == 0) => Ok(None),
            Ok(bytes) => NamespaceData::parse(&bytes).map(Some),
            Err(error) if error.status().is_some_and(|s| s.is(Status::NO_NAMESPACE)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn identify(&mut self, control: &Control, what: u32, namespace: u32) -> Result<Vec<u8>> {
        let command = Command::new(admin::IDENTIFY, namespace).with_10_11(what, 0);
        self.read(control, "identify", command, IDENTIFY_SIZE)
    }

    /// Reads the first `size` bytes, a multiple of 4 and 4,096 at most, of a log page.
    pub(crate) fn log_page(&mut self, control: &Control, log: u8, size: usize) -> Result<Vec<u8>> {
        let dwords = u32::try_from(size / 4).expect("no more than a page") - 1;
        let command = Command::new(admin::GET_LOG_PAGE, u32::MAX)
            .with_10_11(u32::from(log) | (dwords & 0xffff) << 16, dwords >> 16);
        self.read(control, "read a log page", command, size)
    }

    pub(crate) fn feature(&mut self, control: &Control, number: u8) -> Result<u32> {
        let command = Command::new(admin::GET_FEATURES, 0).with_10_11(u32::from(number), 0);
        self.execute(control, "get a feature", command)
    }

    pub(crate) fn set_feature(&mut self, control: &Control, number: u8, value: u32) -> Result<u32> {
        let command = Command::new(admin::SET_FEATURES, 0).with_10_11(u32::from(number), value);
        self.execute(control, "set a feature", command)
    }

    /// Uses the volatile write cache, or not, from now on.
    pub(crate) fn set_cache_used(&mut self, control: &Control, used: bool) -> Result<()> {
        let number = feature::VOLATILE_WRITE_CACHE;
        self.set_feature(control, number, u32::from(used))?;
        self.cache_setting = Some(used);
        self.is_cache_used = used;
        Ok(())
    }

    /// Formats a namespace. That may take as long as `limit`.
    pub(crate) fn format(
        &mut self,
        control: &Control,
        namespace: u32,
        settings: u32,
        limit: Duration,
    ) -> Result<()> {
        let command = Command::new(admin::FORMAT, namespace).with_10_11(settings, 0);
        self.execute_within(control, "format", command, limit)?;
        Ok(())
    }

    /// Whether there is a volatile write cache that is used.
    pub(crate) const fn is_cache_used(&self) -> bool {
        self.is_cache_used
    }

    /// Why the queue cannot be used until the controller is enabled anew; none if it can.
    pub(crate) fn broken(&self) -> Option<Error> {
        self.queue.broken()
    }

    /// Whether there are events that were not taken. An error breaks the queue.
    pub(crate) fn has_events(&mut self) -> bool {
        self.queue.poll().is_ok() && self.queue.has_events()
    }

    /// Asks for a command of an I/O queue to be aborted; false if that must wait.
    pub(crate) fn try_abort(&mut self, queue: u16, command: u16) -> Result<bool> {
        self.queue.try_abort(queue, command)
    }

    /// The events that came. Their log pages are read, without which they would not come again.
    pub(crate) fn take_events(&mut self, control: &Control) -> Result<(Vec<AsyncEvent>, u64)> {
        self.queue.poll()?;
        let (events, lost) = self.queue.take_events();
        match self.acknowledge(control, &events) {
            Ok(()) => Ok((events, lost)),
            Err(error) => {
                self.queue.put_back_events(events, lost);
                Err(error)
            }
        }
    }

    fn acknowledge(&mut self, control: &Control, events: &[AsyncEvent]) -> Result<()> {
        let mut pages: Vec<u8> = events.iter().map(|event| event.log_page).collect();
        pages.sort_unstable();
        pages.dedup();
        for log in pages {
            let size = match log {
                page::CHANGED_NAMESPACES => IDENTIFY_SIZE,
                _ => LOG_SHORT,
            };
            let read = self.log_page(control, log, size);
            optional(read.map(|_| 0))?;
        }
        self.queue.renew_events()
    }

    fn read(
        &mut self,
        control: &Control,
        what: &str,
        command: Command,
        size: usize,
    ) -> Result<Vec<u8>> {
        for offset in (0..size).step_by(8) {
            self.scratch.store_u64(offset, 0);
        }
        let pointer = Pointer::Prp(self.scratch.iova(), 0);
        self.execute(control, what, command.with_pointer(pointer))?;
        let words = (0..size).step_by(8);
        let bytes = words.flat_map(|offset| self.scratch.load_u64(offset).to_le_bytes());
        Ok(bytes.take(size).collect())
    }

    fn execute(&mut self, control: &Control, what: &str, command: Command) -> Result<u32> {
        self.execute_within(control, what, command, control.options.admin_timeout)
    }

    fn execute_within(
        &mut self,
        control: &Control,
        what: &str,
        command: Command,
        limit: Duration,
    ) -> Result<u32> {
        let alive = || control.check_alive();
        self.queue
            .execute(what, command, &*control.host, limit, &alive)
    }
}

/// False if the controller answered that it cannot do this; other errors stay errors.
fn optional(result: Result<u32>) -> Result<bool> {
    match result {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::Command => Ok(false),
        Err(error) => Err(error),
    }
}

/// Memory for a queue or a list: zeroed, and beginning at a multiple of `align` for the device.
pub(crate) fn take_memory(arena: &Arena, size: usize, align: u64) -> Result<DeviceMemory> {
    let buffer = arena
        .try_buffer(size)
        .map_err(|error| Error::new(ErrorKind::Memory, error.to_string()))?;
    if buffer.iova().0 % align != 0 {
        let context = format!(
            "device address {} is not a multiple of {align}: this machine's pages are smaller than the controller's",
            buffer.iova()
        );
        return Err(Error::new(ErrorKind::Memory, context));
    }
    Ok(buffer.into_device_memory())
}
