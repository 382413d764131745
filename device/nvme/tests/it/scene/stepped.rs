//! A model that is stepped by the driver's waiting: what happens between two steps of the driver is chosen.

use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};

use millrace_fixtures::nvme::StepHost;
use millrace_memory::{Domain, Iova, Region};
use millrace_nvme::{Controller, Options};
use millrace_nvme_model as model;
use millrace_pci::{Bar, Function};

/// A controller in use, whose model goes so many steps in a round of waiting.
#[derive(Debug)]
pub(crate) struct Stepped {
    pub(crate) model: model::Controller,
    pub(crate) controller: Arc<Controller>,
}

impl Stepped {
    pub(crate) fn new(
        steps: u32,
        hook: Option<&Arc<MapHook>>,
    ) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        let model = model::Controller::new(model::Options {
            namespaces: vec![super::blocks_of_512()],
            ..model::Options::default()
        })?;
        let host = Arc::new(StepHost::new(model.clone(), steps));
        let own = model.function();
        let function = match hook {
            Some(hook) => Arc::new(Hooked {
                domain: Arc::new(HookedDomain {
                    own: own.domain(),
                    hook: Arc::clone(hook),
                }),
                own,
            }),
            None => own,
        };
        Ok(Self {
            controller: Controller::open(function, host, Options::default())?,
            model,
        })
    }
}

/// What happens when memory is mapped.
#[derive(Debug, Default)]
pub(crate) struct MapHook {
    resets: Mutex<Option<Arc<Controller>>>,
}

impl MapHook {
    /// The next time that memory is mapped, the controller is reset first.
    pub(crate) fn reset_at_next_map(&self, controller: &Arc<Controller>) {
        let mut resets = self.resets.lock().unwrap_or_else(PoisonError::into_inner);
        *resets = Some(Arc::clone(controller));
    }

    fn strike(&self) {
        let mut resets = self.resets.lock().unwrap_or_else(PoisonError::into_inner);
        let due = resets.take();
        drop(resets);
        if let Some(controller) = due {
            controller.reset().expect("the model can be reset");
        }
    }
}

/// A function whose memory is mapped with a hook.
#[derive(Debug)]
struct Hooked {
    own: Arc<dyn Function>,
    domain: Arc<dyn Domain>,
}

#[derive(Debug)]
struct HookedDomain {
    own: Arc<dyn Domain>,
    hook: Arc<MapHook>,
}

impl Domain for HookedDomain {
    fn map(&self, region: &Arc<Region>) -> millrace_memory::Result<Iova> {
        self.hook.strike();
        self.own.map(region)
    }

    unsafe fn unmap(&self, iova: Iova) -> millrace_memory::Result<()> {
        // SAFETY: the caller keeps the same promise.
        unsafe { self.own.unmap(iova) }
    }
}

impl Function for Hooked {
    fn name(&self) -> &str {
        self.own.name()
    }

    fn read_config(&self, offset: u16, bytes: &mut [u8]) -> millrace_pci::Result<()> {
        self.own.read_config(offset, bytes)
    }

    fn write_config(&self, offset: u16, bytes: &[u8]) -> millrace_pci::Result<()> {
        self.own.write_config(offset, bytes)
    }

    fn bar(&self, index: u8) -> millrace_pci::Result<Arc<Bar>> {
        self.own.bar(index)
    }

    fn domain(&self) -> Arc<dyn Domain> {
        Arc::clone(&self.domain)
    }

    fn vectors(&self) -> u16 {
        self.own.vectors()
    }

    fn set_vectors(&self, events: &[BorrowedFd<'_>]) -> millrace_pci::Result<usize> {
        self.own.set_vectors(events)
    }

    fn reset(&self) -> millrace_pci::Result<()> {
        self.own.reset()
    }
}
