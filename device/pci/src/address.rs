//! Where a function is.

use std::fmt;
use std::str::FromStr;

use crate::{Error, ErrorKind, Result};

/// The address of a PCI function: `domain:bus:device.function`, all in hexadecimal.
///
/// ```
/// use millrace_pci::Address;
///
/// let address: Address = "01:00.0".parse()?;
/// assert_eq!(address.to_string(), "0000:01:00.0");
/// # Ok::<(), millrace_pci::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    domain: u32,
    bus: u8,
    device: u8,
    function: u8,
}

impl Address {
    /// The largest device number and the largest function number (PCI Local Bus 3.0, section 3.2.2.3.4).
    const DEVICE_MAX: u8 = 31;
    const FUNCTION_MAX: u8 = 7;

    /// The address with these numbers.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if a device has a number over 31 or a function one over 7.
    pub fn new(domain: u32, bus: u8, device: u8, function: u8) -> Result<Self> {
        if device > Self::DEVICE_MAX || function > Self::FUNCTION_MAX {
            return Err(Error::new(
                ErrorKind::NotFound,
                format!("device {device:#x}, function {function}: they end at 1f and 7"),
            ));
        }
        Ok(Self {
            domain,
            bus,
            device,
            function,
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            domain,
            bus,
            device,
            function,
        } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function}")
    }
}

impl FromStr for Address {
    type Err = Error;

    /// Reads `0000:01:00.0`, or `01:00.0` for domain 0.
    fn from_str(text: &str) -> Result<Self> {
        let wrong = |what: &str| {
            Error::new(
                ErrorKind::NotFound,
                format!("{text:?} is not a PCI address like 0000:01:00.0: {what}"),
            )
        };
        let number = |part: &str, digits: usize, what: &str| {
            let short = !part.is_empty() && part.len() <= digits;
            let plain = part.bytes().all(|byte| byte.is_ascii_hexdigit());
            if !short || !plain {
                return Err(wrong(what));
            }
            u32::from_str_radix(part, 16).map_err(|_| wrong(what))
        };
        let byte = |part: &str, digits: usize, what: &str| {
            u8::try_from(number(part, digits, what)?).map_err(|_| wrong(what))
        };
        let (place, function) = text
            .rsplit_once('.')
            .ok_or_else(|| wrong("the function is missing"))?;
        let mut parts = place.rsplit(':');
        let device = parts.next().unwrap_or_default();
        let bus = parts.next().ok_or_else(|| wrong("the bus is missing"))?;
        let domain = parts.next().unwrap_or("0");
        if parts.next().is_some() {
            return Err(wrong("there are too many parts"));
        }
        let domain = number(domain, 8, "the domain is not hexadecimal")?;
        let bus = byte(bus, 2, "the bus is not hexadecimal")?;
        let device = byte(device, 2, "the device is not hexadecimal")?;
        let function = byte(function, 1, "the function is not one digit")?;
        Self::new(domain, bus, device, function)
            .map_err(|_| wrong("devices end at 1f and functions at 7"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(domain: u32, bus: u8, device in 0_u8..32, function in 0_u8..8) {
            let address = Address::new(domain, bus, device, function)?;
            prop_assert_eq!(address.to_string().parse::<Address>()?, address);
        }

        #[test]
        fn any_text_is_an_address_or_an_error(text in "[0-9a-fxg:. -]{0,16}") {
            match text.parse::<Address>() {
                Ok(address) => prop_assert_eq!(address.to_string().parse::<Address>()?, address),
                Err(error) => prop_assert_eq!(error.kind(), ErrorKind::NotFound),
            }
        }
    }

    #[test]
    fn the_short_form_is_of_domain_0() {
        let read = |text: &str| text.parse::<Address>().map(|address| address.to_string());
        assert_eq!(read("01:00.0").ok().as_deref(), Some("0000:01:00.0"));
        assert_eq!(read("10000:e1:1f.7").ok().as_deref(), Some("10000:e1:1f.7"));
    }

    #[test]
    fn errors_say_which_part_is_wrong() {
        let rows = [
            ("", "the function is missing"),
            ("nvme0", "the function is missing"),
            ("00.0", "the bus is missing"),
            ("0:0:0:0.0", "too many parts"),
            ("0000:xx:00.0", "the bus is not hexadecimal"),
            ("0000:+1:00.0", "the bus is not hexadecimal"),
            ("0000:01:20.0", "devices end at 1f"),
            ("0000:01:00.8", "functions at 7"),
            ("0000:01:00.", "the function is not one digit"),
            ("123456789:01:00.0", "the domain is not hexadecimal"),
        ];
        for (text, expected) in rows {
            let error = text.parse::<Address>().expect_err("it is no address");
            assert!(error.to_string().contains(expected), "{text:?}: {error}");
        }
    }
}
