//! Controllers as the options describe them.

use millrace_nvme_model::{Controller, ErrorKind, NamespaceOptions, Options};

use crate::host::Host;

fn namespace(block_size: u32, blocks: u64) -> NamespaceOptions {
    NamespaceOptions {
        block_size,
        blocks,
        ..NamespaceOptions::default()
    }
}

fn of(namespaces: Vec<NamespaceOptions>) -> Options {
    Options {
        namespaces,
        ..Options::default()
    }
}

#[test]
fn namespaces_are_no_larger_than_can_be_kept() {
    for namespaces in [
        vec![namespace(1 << 20, 1 << 44)],
        vec![namespace(512, u64::MAX)],
        vec![namespace(4096, (1 << 41) + 1)],
        vec![namespace(4096, 1 << 40), namespace(512, (1 << 43) + 1)],
    ] {
        let error = Controller::new(of(namespaces)).expect_err("it is too large");
        assert_eq!(error.kind(), ErrorKind::Options);
        assert!(error.to_string().contains("more than"), "{error}");
    }
    let last = (1 << 41) - 1;
    let mut host = Host::ready(of(vec![namespace(4096, 1 << 41)]));
    host.fill(4096, 1);
    let write = host.transfer(1, last, 1, 4096);
    assert_eq!(host.run(1, write).status, 0);
    host.fill(4096, 2);
    let read = host.transfer(2, last, 1, 4096);
    assert_eq!(host.run(1, read).status, 0);
    assert!(host.holds(4096, 1));
    host.assert_lawful();
}
