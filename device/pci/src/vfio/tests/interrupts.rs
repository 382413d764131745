//! Vectors, INTx, and being told of a removal.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use vfio_bindings::bindings::vfio;

use super::{Fixture, Machine, TYPE1, VECTORS, machine};
use crate::ErrorKind;
use crate::vfio::Options;

fn eventfds(count: u32) -> Vec<OwnedFd> {
    (0..count)
        .map(|_| eventfd(0, EventfdFlags::CLOEXEC).expect("a descriptor is left"))
        .collect()
}

#[test]
fn interrupts_are_set_replaced_and_switched_off() {
    let fixture = Fixture::new(machine(&[TYPE1]));
    let function = fixture.opened();
    let events = eventfds(VECTORS + 1);
    let events: Vec<_> = events.iter().map(AsFd::as_fd).collect();
    let vectors = || fixture.script.with(|memory| memory.vectors);
    for count in [0, 3, 9, 1, 0, 0] {
        let taken = function.set_vectors(&events[..count]);
        assert_eq!(taken.expect("there are as many"), count);
        assert_eq!(vectors() as usize, count);
    }
    let error = function.set_vectors(&events).expect_err("one too many");
    assert_eq!(error.kind(), ErrorKind::OutOfRange);
    // If the new ones are refused the old ones are gone, and that is known.
    function
        .set_vectors(&events[..2])
        .expect("there are as many");
    fixture
        .script
        .with(|memory| memory.refuse_after = Some((1, Errno::NOMEM)));
    function.set_vectors(&events[..4]).expect_err("refused");
    function
        .set_vectors(&events[..4])
        .expect("not refused again");
    assert_eq!(vectors(), 4);
}

#[test]
fn as_many_vectors_are_taken_as_the_host_has() {
    let events = eventfds(VECTORS);
    let events: Vec<_> = events.iter().map(AsFd::as_fd).collect();
    for vectors_free in [0, 1, 5, VECTORS, 100] {
        let fixture = Fixture::new(Machine {
            vectors_free,
            ..machine(&[TYPE1])
        });
        let function = fixture.opened();
        for wanted in [9, 0, 4, 9] {
            let taken = function.set_vectors(&events[..wanted]);
            let expected = wanted.min(vectors_free as usize);
            assert_eq!(taken.expect("fewer are no failure"), expected);
            let set = fixture.script.with(|memory| memory.vectors);
            assert_eq!(set as usize, expected);
        }
    }
}

#[test]
fn some_vectors_are_taken_where_the_host_does_not_say_how_many_it_has() {
    let events = eventfds(VECTORS);
    let events: Vec<_> = events.iter().map(AsFd::as_fd).collect();
    for (vectors_free, expected) in [(0, 0), (1, 1), (3, 2), (5, 4), (9, 9)] {
        let fixture = Fixture::new(Machine {
            vectors_free,
            vectors_silent: true,
            ..machine(&[TYPE1])
        });
        let taken = fixture.opened().set_vectors(&events[..9]);
        assert_eq!(taken.expect("fewer are no failure"), expected);
    }
}

#[test]
fn a_function_without_vectors_asserts_no_intx() {
    let events = eventfds(VECTORS);
    let events: Vec<_> = events.iter().map(AsFd::as_fd).collect();
    for vectors_free in [0, 2, VECTORS] {
        let fixture = Fixture::new(Machine {
            vectors_free,
            ..machine(&[TYPE1])
        });
        let allowed = || fixture.script.with(|memory| memory.intx_allowed);
        let function = fixture.opened();
        assert!(allowed(), "the kernel hands it out so");
        for on in [true, false, true] {
            function.set_bus_master(on).expect("it answers");
            assert!(!allowed());
            let mut command = [0; 2];
            function.read_config(4, &mut command).expect("it answers");
            let expected = 1 << 10 | 1 << 1 | u16::from(on) << 2;
            assert_eq!(u16::from_le_bytes(command), expected);
        }
        for count in [0, 9, 3, 0, 0, 9, 0] {
            function
                .set_vectors(&events[..count])
                .expect("fewer are no failure");
            assert!(!allowed(), "{count} vectors of {vectors_free}");
        }
        function.set_vectors(&events[..1]).expect("one or none");
        // The first call takes the vectors, the second one sets others.
        fixture
            .script
            .with(|memory| memory.refuse_after = Some((1, Errno::NOMEM)));
        let refused = function.set_vectors(&events[..2]);
        assert!(refused.is_err() || vectors_free == 0);
        assert!(!allowed());
    }
}

#[test]
fn a_removal_is_watched_for() {
    let fixture = Fixture::new(machine(&[TYPE1]));
    let event = eventfd(0, EventfdFlags::CLOEXEC).expect("a descriptor is left");
    let descriptor = event.as_raw_fd();
    let options = Options {
        removal: Some(event),
        ..Options::default()
    };
    let function = fixture
        .open_with(options)
        .expect("the script has what is needed");
    let flags = vfio::VFIO_IRQ_SET_DATA_EVENTFD | vfio::VFIO_IRQ_SET_ACTION_TRIGGER;
    let expected = (vfio::VFIO_PCI_REQ_IRQ_INDEX, flags, descriptor);
    fixture
        .script
        .with(|memory| assert_eq!(memory.signals, [expected]));
    drop(function);

    let fixture = Fixture::new(machine(&[TYPE1]));
    fixture.opened();
    fixture.script.with(|memory| assert_eq!(memory.signals, []));
}
