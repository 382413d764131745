//! What `millrace nvme identify` and `smart` print of data structures, byte by byte.

use millrace_nvme::spec::identify::{ControllerData, NamespaceData};
use millrace_nvme::spec::log::{ErrorEntry, Health};
use millrace_tools::nvme::{IdentifyReport, NamespaceReport, SmartReport};
use millrace_tools::terminal::Report;
use serde_json::json;

/// Puts bytes into a data structure.
fn put(structure: &mut [u8], offset: usize, bytes: &[u8]) {
    structure[offset..offset + bytes.len()].copy_from_slice(bytes);
}

/// A field of text, padded by blanks.
fn put_text(structure: &mut [u8], offset: usize, size: usize, text: &str) {
    put(structure, offset, format!("{text:size$}").as_bytes());
}

/// Identify Controller (Base 1.4, figure 247).
fn controller() -> ControllerData {
    let mut bytes = [0; 4096];
    put(&mut bytes, 0, &0x1b36_u16.to_le_bytes());
    put_text(&mut bytes, 4, 20, "S123");
    put_text(&mut bytes, 24, 40, "A disk");
    put_text(&mut bytes, 64, 8, "2.1");
    put(&mut bytes, 78, &7_u16.to_le_bytes());
    put(&mut bytes, 80, &0x0001_0400_u32.to_le_bytes());
    // Format, shadow doorbells.
    put(&mut bytes, 256, &0x0102_u16.to_le_bytes());
    put(&mut bytes, 266, &343_u16.to_le_bytes());
    put(&mut bytes, 268, &353_u16.to_le_bytes());
    put(&mut bytes, 280, &1_920_383_410_176_u128.to_le_bytes());
    put(&mut bytes, 516, &2_u32.to_le_bytes());
    // Compare, Dataset Management, Write Zeroes.
    put(&mut bytes, 520, &0x000d_u16.to_le_bytes());
    bytes[525] = 1;
    put(&mut bytes, 526, &255_u16.to_le_bytes());
    put(&mut bytes, 536, &1_u32.to_le_bytes());
    put(&mut bytes, 768, b"nqn.2014-08.org.nvmexpress:uuid:1");
    ControllerData::parse(&bytes).expect("sound data")
}

/// Identify Namespace (Base 1.4, figure 245).
fn namespace() -> NamespaceData {
    let mut bytes = [0; 4096];
    put(&mut bytes, 0, &1_000_000_u64.to_le_bytes());
    put(&mut bytes, 8, &1_000_000_u64.to_le_bytes());
    put(&mut bytes, 16, &250_000_u64.to_le_bytes());
    // Atomic sizes of its own; three formats, of which it has the second.
    bytes[24] = 1 << 1;
    bytes[25] = 2;
    bytes[26] = 1;
    bytes[33] = 1;
    put(&mut bytes, 34, &63_u16.to_le_bytes());
    put(&mut bytes, 36, &0_u16.to_le_bytes());
    put(&mut bytes, 44, &127_u16.to_le_bytes());
    put(&mut bytes, 46, &256_u16.to_le_bytes());
    put(&mut bytes, 104, &[0xab; 16]);
    put(&mut bytes, 120, &[1, 2, 3, 4, 5, 6, 7, 8]);
    put(&mut bytes, 128, &[0, 0, 9, 2]);
    put(&mut bytes, 132, &[0, 0, 12, 0]);
    put(&mut bytes, 136, &[8, 0, 12, 1]);
    NamespaceData::parse(&bytes).expect("sound data")
}

fn identify() -> IdentifyReport {
    IdentifyReport {
        name: "0000:01:00.0".to_owned(),
        controller: controller(),
        version: 0x0001_0400,
        transfer_max: 128 << 10,
        queue_pairs: 31,
        cache_used: Some(true),
        doorbells_mapped: true,
        namespaces: vec![
            NamespaceReport {
                id: 1,
                data: Ok(namespace()),
            },
            NamespaceReport {
                id: 2,
                data: Err("not supported: 8 bytes of metadata a block".to_owned()),
            },
        ],
    }
}

#[test]
fn identify_for_people() {
    let expected = "\
0000:01:00.0 (A disk, serial number S123)
  firmware              2.1
  vendor                0x1b36
  controller id         7
  NVMe version          1.4
  capacity              1.92 TB (1,920,383,410,176 bytes)
  longest command       128 KiB
  queue pairs           31
  doorbells             mapped
  write cache           volatile, on: only flushed data survives a power failure
  optional commands     compare, write zeroes, deallocate, format, shadow doorbells
  scatter-gather lists  yes
  warns at              70 °C
  critical at           80 °C
  qualified name        nqn.2014-08.org.nvmexpress:uuid:1

Namespace 1
  size               4.09 GB (4,096,000,000 bytes)
  in use             1.02 GB (1,024,000,000 bytes)
  blocks             1,000,000
  format 0           blocks of 512 bytes, good performance
  format 1           blocks of 4 KiB, best performance, in use
  format 2           blocks of 4 KiB + 8 bytes of metadata (not supported), better performance
  atomic write       64 blocks
  at power failure   1 block
  atomic up to       multiples of 128 blocks
  best not across    multiples of 256 blocks
  deallocated reads  zeroes
  EUI-64             0102030405060708
  NGUID              abababababababababababababababab

Namespace 2
  cannot be used  not supported: 8 bytes of metadata a block
";
    assert_eq!(identify().text(), expected);
    let called = IdentifyReport {
        doorbells_mapped: false,
        ..identify()
    };
    assert!(
        called
            .text()
            .contains("  doorbells             reached by calls, which are slow\n")
    );
}

#[test]
fn identify_for_machines() {
    let expected = json!({
        "device": "0000:01:00.0",
        "controller": {
            "model": "A disk",
            "serial": "S123",
            "firmware": "2.1",
            "vendor": "0x1b36",
            "controller_id": 7,
            "version": "1.4",
            "capacity_bytes": 1_920_383_410_176_u64,
            "transfer_bytes_max": 131_072,
            "queue_pairs_max": 31,
            "doorbells_mapped": true,
            "volatile_write_cache": true,
            "volatile_write_cache_on": true,
            "commands": ["compare", "write zeroes", "deallocate", "format", "shadow doorbells"],
            "scatter_gather": true,
            "temperature_warning_celsius": 70,
            "temperature_critical_celsius": 80,
            "qualified_name": "nqn.2014-08.org.nvmexpress:uuid:1",
        },
        "namespaces": [
            {
                "id": 1,
                "size_bytes": 4_096_000_000_u64,
                "used_bytes": 1_024_000_000,
                "blocks": 1_000_000,
                "block_bytes": 4096,
                "format": 1,
                "formats": [
                    { "block_bytes": 512, "metadata_bytes": 0, "performance": "good" },
                    { "block_bytes": 4096, "metadata_bytes": 0, "performance": "best" },
                    { "block_bytes": 4096, "metadata_bytes": 8, "performance": "better" },
                ],
                "atomic_write_blocks": 64,
                "atomic_write_power_fail_blocks": 1,
                "atomic_boundary_blocks": 128,
                "optimal_boundary_blocks": 256,
                "deallocated_reads": "zeroes",
                "eui64": "0102030405060708",
                "nguid": "abababababababababababababababab",
            },
            { "id": 2, "unusable": "not supported: 8 bytes of metadata a block" },
        ],
    });
    assert_eq!(identify().json(), expected);
}

/// The SMART / Health Information log page (Base 1.4, figure 194).
fn health(warnings: u8, used: u8, media_errors: u128) -> Health {
    let mut bytes = [0; 512];
    bytes[0] = warnings;
    put(&mut bytes, 1, &310_u16.to_le_bytes());
    put(&mut bytes, 3, &[97, 10, used]);
    let counts: [u128; 10] = [
        2_000_000,
        1_500_000,
        7_000_000,
        5_000_000,
        4_321,
        12,
        10_000,
        3,
        media_errors,
        2,
    ];
    for (index, count) in counts.iter().enumerate() {
        put(&mut bytes, 32 + 16 * index, &count.to_le_bytes());
    }
    put(&mut bytes, 192, &5_u32.to_le_bytes());
    put(&mut bytes, 200, &308_u16.to_le_bytes());
    put(&mut bytes, 204, &330_u16.to_le_bytes());
    Health::parse(&bytes).expect("a whole page")
}

/// Two entries of the Error Information log page (Base 1.4, figure 193).
fn errors() -> Vec<ErrorEntry> {
    let mut bytes = [0; 192];
    put(&mut bytes, 0, &2_u64.to_le_bytes());
    put(&mut bytes, 8, &3_u16.to_le_bytes());
    put(&mut bytes, 10, &19_u16.to_le_bytes());
    put(&mut bytes, 12, &(0x0281_u16 << 1).to_le_bytes());
    put(&mut bytes, 16, &123_456_u64.to_le_bytes());
    put(&mut bytes, 24, &1_u32.to_le_bytes());
    put(&mut bytes, 64, &1_u64.to_le_bytes());
    put(&mut bytes, 72, &[0xff; 4]);
    put(&mut bytes, 76, &(0x0006_u16 << 1).to_le_bytes());
    put(&mut bytes, 88, &[0xff; 4]);
    ErrorEntry::parse_all(&bytes).expect("whole entries")
}

fn smart(health: Health, errors: Option<Vec<ErrorEntry>>) -> SmartReport {
    SmartReport {
        name: "vfio-user:/run/ctrl.sock".to_owned(),
        controller: controller(),
        health,
        errors,
    }
}

#[test]
fn smart_for_people() {
    let expected = "\
vfio-user:/run/ctrl.sock (A disk, serial number S123)
  state                healthy
  temperature          37 °C
  sensor 1             35 °C
  sensor 3             57 °C
  spare                97 % (low below 10 %)
  life used            4 %
  data read            1.02 TB (1,024,000,000,000 bytes)
  data written         768.00 GB (768,000,000,000 bytes)
  read commands        7,000,000
  write commands       5,000,000
  busy                 4,321 minutes
  with power           10,000 hours
  power cycles         12
  power lost unawares  3
  media errors         0
  error log entries    2
  above warning        5 minutes
  above critical       0 minutes
";
    assert_eq!(smart(health(0, 4, 0), None).text(), expected);
}

#[test]
fn smart_spells_warnings_and_errors_out() {
    let report = smart(health(0b1_1111, 104, 9), Some(errors()));
    let text = report.text();
    let warnings: Vec<&str> = text
        .lines()
        .filter(|line| line.contains("WARNING"))
        .collect();
    let expected = [
        "spare below its threshold",
        "temperature out of range",
        "reliability degraded",
        "media read only",
        "backup of the volatile memory failed",
        "104 % of the life it is rated for is used",
        "data could not be recovered 9 times",
    ];
    assert_eq!(warnings.len(), expected.len(), "{text}");
    for (line, expected) in warnings.iter().zip(expected) {
        assert!(line.ends_with(expected), "{line}");
    }
    let table = "
ERROR  QUEUE  COMMAND  NAMESPACE   BLOCK  STATUS
    2      3       19          1  123456  unrecovered read error (type 0x2, code 0x81)
    1      -        -          -       0  internal error (type 0x0, code 0x06)
";
    assert!(text.ends_with(table), "{text}");
}

#[test]
fn smart_for_machines() {
    let report = smart(health(1, 4, u128::MAX), Some(errors()));
    let expected = json!({
        "device": "vfio-user:/run/ctrl.sock",
        "model": "A disk",
        "serial": "S123",
        "healthy": false,
        "warnings": report.warnings(),
        "critical_warning_bits": 1,
        "temperature_celsius": 37,
        "sensors_celsius": [35, null, 57],
        "spare_percent": 97,
        "spare_threshold_percent": 10,
        "used_percent": 4,
        "data_read_bytes": 1_024_000_000_000_u64,
        "data_written_bytes": 768_000_000_000_u64,
        "read_commands": 7_000_000,
        "write_commands": 5_000_000,
        "busy_minutes": 4_321,
        "power_cycles": 12,
        "power_on_hours": 10_000,
        "unsafe_shutdowns": 3,
        // No number of JSON's holds it.
        "media_errors": u128::MAX.to_string(),
        "error_log_entries": 2,
        "above_warning_minutes": 5,
        "above_critical_minutes": 0,
        "errors": [
            {
                "number": 2,
                "queue": 3,
                "command": 19,
                "namespace": 1,
                "block": 123_456,
                "status": "0x0281",
                "status_name": "unrecovered read error",
            },
            {
                "number": 1,
                "queue": null,
                "command": null,
                "namespace": null,
                "block": 0,
                "status": "0x0006",
                "status_name": "internal error",
            },
        ],
    });
    assert_eq!(report.json(), expected);
}
