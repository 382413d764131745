//! The controller behind a socket.

use std::os::fd::AsFd;
use std::thread;

use millrace_nvme_model::{ErrorKind, Options, Service};
use millrace_pci::vfio_user;
use rustix::event::{EventfdFlags, eventfd};

use crate::host::{Host, command};

#[test]
fn a_client_drives_it_and_the_next_finds_its_data() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let service = Service::bind(Options::default(), &path).unwrap();
    let controller = service.controller();
    let server = thread::spawn(move || {
        for _ in 0..2 {
            let served = service.serve_client();
            served.expect("clients keep to the protocol");
        }
    });
    let function = vfio_user::connect(&path).unwrap();
    let mut host = Host::with_function(controller.clone(), function);
    assert_eq!(host.function.identity().unwrap().class, 0x01_08_02);
    assert!(host.bar.mapped() > 0, "the doorbells");
    let vectors = usize::from(host.function.vectors());
    let events: Vec<_> = (0..vectors)
        .map(|_| eventfd(0, EventfdFlags::NONBLOCK).unwrap())
        .collect();
    let borrowed: Vec<_> = events.iter().map(AsFd::as_fd).collect();
    host.function.set_vectors(&borrowed).unwrap();
    host.enable();
    host.create_queues(2);
    host.fill(3 * 4096, 1);
    let write = host.transfer(1, 7, 3, 4096);
    assert_eq!(host.run(2, write).status, 0);
    let mut count = [0; 8];
    assert_eq!(rustix::io::read(&events[2], &mut count).unwrap(), 8);
    host.identify(1, 0);
    assert_eq!(host.byte(77), 5, "MDTS");
    host.assert_lawful();
    host.function.reset().unwrap();
    assert_eq!((host.register(0x14), host.register(0x1c)), (0, 0));
    drop(host);

    let function = vfio_user::connect(&path).unwrap();
    let mut host = Host::with_function(controller.clone(), function);
    host.enable();
    host.create_queues(1);
    let read = host.transfer(2, 7, 3, 4096);
    assert_eq!(host.run(1, read).status, 0);
    assert!(host.holds(3 * 4096, 1));
    for _ in 0..500 {
        assert_eq!(host.run(1, command(0, 1)).status, 0);
    }
    host.assert_lawful();
    drop(host);
    server.join().unwrap();
}

#[test]
fn a_socket_in_use_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let _service = Service::bind(Options::default(), &path).unwrap();
    let error = Service::bind(Options::default(), &path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Server);
    let nothing = Options {
        namespaces: Vec::new(),
        ..Options::default()
    };
    let error = Service::bind(nothing, &path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Options);
}
