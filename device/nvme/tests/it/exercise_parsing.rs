//! What a driver does with identify data and log pages of unknown origin: shared by the fuzz target
//! `nvme_identify` and by the deterministic run in `tests/it/parsing.rs`.

use millrace_nvme::spec::identify::{
    ControllerData, IDENTIFY_SIZE, NamespaceData, parse_namespace_list,
};
use millrace_nvme::spec::log::{ERROR_SIZE, ErrorEntry, HEALTH_SIZE, Health};
use millrace_nvme::{ErrorKind, Status};

/// Reads `bytes` as each of the structures. Must not panic; what was read lies within what its
/// documentation says.
pub(crate) fn parse_all(bytes: &[u8]) {
    controller(bytes);
    namespace(bytes);
    for after in [0, 1, 1 << 31, u32::MAX - 1, u32::MAX] {
        namespace_list(bytes, after);
    }
    health(bytes);
    error_log(bytes);
}

fn is_text(text: &str, len_max: usize) -> bool {
    text.len() <= len_max && text.chars().all(|c| matches!(c, ' '..='~')) && text.trim() == text
}

fn controller(bytes: &[u8]) {
    let data = match ControllerData::parse(bytes) {
        Ok(data) => data,
        Err(error) => {
            let short = bytes.len() < IDENTIFY_SIZE;
            let kind = if short {
                ErrorKind::Protocol
            } else {
                ErrorKind::Unsupported
            };
            assert_eq!(error.kind(), kind, "{error}");
            return;
        }
    };
    assert!(bytes.len() >= IDENTIFY_SIZE);
    assert!(is_text(&data.serial, 20) && is_text(&data.model, 40));
    assert!(is_text(&data.firmware, 8) && is_text(&data.qualified_name, 256));
    assert_eq!(data.has_compare(), bytes[520] & 1 != 0);
    assert_eq!(data.has_dataset_management(), bytes[520] & 4 != 0);
    assert_eq!(data.has_write_zeroes(), bytes[520] & 8 != 0);
    assert_eq!(data.has_format(), bytes[256] & 2 != 0);
    assert_eq!(data.has_doorbell_buffers(), bytes[257] & 1 != 0);
    assert_eq!(data.has_sgl(), matches!(bytes[536] & 3, 1 | 2));
    for shift in (0..=64).chain([u32::MAX - 255, u32::MAX]) {
        match data.transfer_max(shift) {
            Some(limit) => {
                assert!(limit.is_power_of_two() && data.transfer_shift > 0);
                let log = u64::from(data.transfer_shift) + u64::from(shift);
                assert_eq!(u64::from(limit.ilog2()), log);
            }
            None => assert!(
                data.transfer_shift == 0 || u64::from(data.transfer_shift) + u64::from(shift) >= 63
            ),
        }
    }
    assert_eq!(data.clone(), data);
    assert!(!format!("{data:?}").is_empty());
}

fn namespace(bytes: &[u8]) {
    let data = match NamespaceData::parse(bytes) {
        Ok(data) => data,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
            return;
        }
    };
    assert!(bytes.len() >= IDENTIFY_SIZE);
    assert!((1..=64).contains(&data.formats.len()));
    assert!(data.format < data.formats.len() && data.deallocated < 8);
    assert!(data.formats.iter().all(|format| format.performance < 4));
    assert_eq!(data.block_format(), data.formats[data.format]);
    let has_own_units = bytes[24] & 2 != 0;
    for unit in [data.atomic_write, data.atomic_write_power_fail] {
        assert!(unit.is_none_or(|unit| has_own_units && unit > 0));
    }
    assert_eq!(data.eui64.to_be_bytes(), bytes[120..128]);
    assert_eq!(data.nguid.to_be_bytes(), bytes[104..120]);
    assert!(!format!("{data:?}").is_empty());
}

fn namespace_list(bytes: &[u8], after: u32) {
    match parse_namespace_list(bytes, after) {
        Ok(ids) => {
            assert!(ids.len() <= IDENTIFY_SIZE / 4);
            assert!(ids.first().is_none_or(|first| *first > after));
            assert!(ids.is_sorted_by(|before, behind| before < behind));
        }
        Err(error) => assert_eq!(error.kind(), ErrorKind::Protocol, "{error}"),
    }
}

fn health(bytes: &[u8]) {
    match Health::parse(bytes) {
        Ok(health) => {
            assert!(bytes.len() >= HEALTH_SIZE);
            assert!(!health.sensors.contains(&Some(0)));
            let named = (health.warnings & 0x3f).count_ones() as usize;
            assert_eq!(health.warning_names().len(), named);
            assert!(!format!("{health:?}").is_empty());
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
            assert!(bytes.len() < HEALTH_SIZE);
        }
    }
}

fn error_log(bytes: &[u8]) {
    match ErrorEntry::parse_all(bytes) {
        Ok(entries) => {
            assert!(entries.len() <= bytes.len() / ERROR_SIZE);
            for entry in entries {
                assert!(entry.number > 0);
                status(entry.status);
            }
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
            assert_ne!(bytes.len() % ERROR_SIZE, 0);
        }
    }
}

fn status(status: Status) {
    assert!(status.kind() < 8 && status.code() < 256 && status.is(status));
    assert_eq!(status.is_success(), status.is(Status::SUCCESS));
    assert!(!status.name().is_empty() && !format!("{status} {status:?}").is_empty());
    let (more, last) = (status.0 & 1 << 13 != 0, status.0 & 1 << 14 != 0);
    assert_eq!((status.has_more(), status.is_final()), (more, last));
}
