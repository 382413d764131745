//! A lawful host and a controller without faults.

use crate::host::{DATA, Host, command, set_blocks, set_prp};
use millrace_nvme_model::{NamespaceOptions, Options};

#[test]
fn capabilities_say_what_the_options_say() {
    let options = Options {
        queue_entries_max: 256,
        doorbell_stride: 2,
        timeout: 7,
        ..Options::default()
    };
    let host = Host::new(options);
    let low = host.register(0x00);
    let high = host.register(0x04);
    assert_eq!(low & 0xffff, 255, "MQES");
    assert_eq!(low >> 24, 7, "TO");
    assert_eq!(high & 0xf, 2, "DSTRD");
    assert_eq!(high >> 5 & 1, 1, "the NVM command set");
    assert_eq!(host.register(0x08), 0x0001_0400);
}

#[test]
fn enables_identifies_and_disables() {
    let mut host = Host::ready(Options::default());
    assert_eq!(host.identify(1, 0).status, 0);
    assert_eq!(host.byte(77), 5, "MDTS");
    assert_eq!((host.byte(512), host.byte(513)), (0x66, 0x44));
    assert_eq!(host.byte(4), b'M');
    assert_eq!(host.byte(23), b' ', "the serial number is padded");
    assert_eq!(host.memory.load_u32(DATA + 516), 1, "NN");
    assert_eq!(host.byte(525) & 1, 1, "VWC");

    assert_eq!(host.identify(2, 0).status, 0);
    assert_eq!(host.memory.load_u32(DATA), 1);
    assert_eq!(host.memory.load_u32(DATA + 4), 0);

    assert_eq!(host.identify(0, 1).status, 0);
    assert_eq!(host.memory.load_u64(DATA), 16 << 10, "NSZE");
    assert_eq!(host.byte(26) & 0xf, 1, "FLBAS");
    assert_eq!(host.memory.load_u32(DATA + 132) >> 16 & 0xff, 12, "LBADS");

    assert_eq!(host.identify(3, 1).status, 0);
    assert_eq!((host.byte(0), host.byte(1)), (1, 8), "EUI64");
    assert_eq!((host.byte(12), host.byte(13)), (2, 16), "NGUID");
    host.assert_lawful();
    host.disable();
    host.enable();
    host.assert_lawful();
}

#[test]
fn reads_what_was_written_in_all_lengths() {
    for block_size in [512_u32, 4096] {
        let namespace = NamespaceOptions {
            block_size,
            blocks: 4096,
            ..NamespaceOptions::default()
        };
        let mut host = Host::ready(Options {
            namespaces: vec![namespace],
            transfer_max: 0,
            ..Options::default()
        });
        let size = usize::try_from(block_size).unwrap();
        for blocks in [1_u32, 2, 3, 15, 16, 17, 64, 256] {
            let length = size * usize::try_from(blocks).unwrap();
            let first = u64::from(blocks) * 3 + 1;
            host.fill(length, first);
            let write = host.transfer(1, first, blocks, size);
            assert_eq!(host.run(1, write).status, 0);
            host.fill(length, 999);
            let read = host.transfer(2, first, blocks, size);
            assert_eq!(host.run(1, read).status, 0);
            assert!(host.holds(length, first), "{blocks} blocks of {size}");
        }
        assert_eq!(host.run(1, command(0, 1)).status, 0);
        host.assert_lawful();
    }
}

#[test]
fn unwritten_and_deallocated_blocks_read_as_zeros() {
    let mut host = Host::ready(Options::default());
    host.fill(8192, 1);
    let write = host.transfer(1, 10, 2, 4096);
    assert_eq!(host.run(1, write).status, 0);
    // One range of one block.
    host.memory.store_u64(DATA, 1 << 32);
    host.memory.store_u64(DATA + 8, 10);
    let mut deallocate = command(9, 1);
    set_prp(&mut deallocate, host.address(DATA), 0);
    deallocate[11] = 4;
    assert_eq!(host.run(1, deallocate).status, 0);
    assert!(
        host.controller
            .peek(1, 10)
            .unwrap()
            .iter()
            .all(|byte| *byte == 0)
    );
    assert!(
        host.controller
            .peek(1, 11)
            .unwrap()
            .iter()
            .any(|byte| *byte != 0)
    );
    let mut zero = command(8, 1);
    set_blocks(&mut zero, 11, 1);
    assert_eq!(host.run(1, zero).status, 0);
    assert!(
        host.controller
            .peek(1, 11)
            .unwrap()
            .iter()
            .all(|byte| *byte == 0)
    );
    host.assert_lawful();
}

#[test]
fn compares() {
    let mut host = Host::ready(Options::default());
    host.fill(4096, 1);
    let write = host.transfer(1, 5, 1, 4096);
    assert_eq!(host.run(1, write).status, 0);
    let compare = host.transfer(5, 5, 1, 4096);
    assert_eq!(host.run(1, compare).status, 0);
    host.memory.store_u32(DATA + 4092, 0);
    assert_eq!(host.run(1, compare).code(), 0x285);
    host.assert_lawful();
}

#[test]
fn queues_wrap_and_keep_their_order() {
    let mut host = Host::ready(Options::default());
    for round in 0..20_u32 {
        let ids: Vec<u16> = (0..40).map(|_| host.submit(1, command(0, 1))).collect();
        for id in ids {
            let completion = host.next(1);
            assert_eq!((completion.id, completion.status), (id, 0), "round {round}");
        }
    }
    host.assert_lawful();
}
