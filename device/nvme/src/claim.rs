//! Exclusive claim of a function: two drivers would write the same doorbells.

use std::sync::{Arc, Mutex, PoisonError};

use millrace_pci::Function;

use crate::{Error, ErrorKind, Result};

/// Where the functions lie that are driven.
static CLAIMED: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// The right to drive a function, until it is dropped.
#[derive(Debug)]
pub(crate) struct Claim {
    /// Kept, so that no other function comes to lie in its place.
    function: Arc<dyn Function>,
}

impl Claim {
    pub(crate) fn new(function: &Arc<dyn Function>) -> Result<Self> {
        let mut claimed = CLAIMED.lock().unwrap_or_else(PoisonError::into_inner);
        let place = place(function);
        if claimed.contains(&place) {
            let context = format!("{} is driven already", function.name());
            return Err(Error::new(ErrorKind::Invalid, context));
        }
        claimed.push(place);
        Ok(Self {
            function: Arc::clone(function),
        })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut claimed = CLAIMED.lock().unwrap_or_else(PoisonError::into_inner);
        let place = place(&self.function);
        claimed.retain(|other| *other != place);
    }
}

fn place(function: &Arc<dyn Function>) -> usize {
    Arc::as_ptr(function).cast::<()>().addr()
}
