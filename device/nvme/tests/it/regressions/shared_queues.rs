//! Of queue pairs that many threads use.

use millrace_nvme::{CommandError, Host, Lba, Refusal, Request, SharedQueue};

use super::small;
use crate::fixture::{Fixture, Outcome, arena, filled, polled, quick};

/// A handle was given the completion of a dropped one, whose request still lay in the inbox.
#[test]
fn a_handle_hears_nothing_of_what_a_dropped_one_asked() -> Outcome {
    let fixture = Fixture::new(small())?;
    let controller = fixture.open(quick())?;
    let namespace = controller.namespace(1)?;
    let arena = arena(&controller)?;
    let queue = SharedQueue::new(polled(&controller, 8)?, 4);
    let mut first = queue.handle();
    let read = Request::read(Lba(0), filled(&arena, 512, 0)?, 77);
    first.submit(&namespace, read)?;
    drop(first);
    let mut second = queue.handle();
    for _ in 0..100 {
        let other = second.poll();
        assert!(other.is_none(), "it did not ask for this: {other:?}");
        fixture.model.step();
    }
    assert_eq!(fixture.model.counters().reads, 1, "it is done all the same");
    Ok(())
}

/// A handle still accepted requests when the controller was gone. What lay in the inbox before ends.
#[test]
fn requests_are_refused_once_the_controller_is_gone() -> Outcome {
    let fixture = Fixture::new(small())?;
    let controller = fixture.open(quick())?;
    let namespace = controller.namespace(1)?;
    let arena = arena(&controller)?;
    // The pair has room for one: the other stays in the inbox meanwhile.
    let queue = SharedQueue::new(polled(&controller, 1)?, 4);
    let mut handle = queue.handle();
    for token in 0..2 {
        let read = Request::read(Lba(0), filled(&arena, 512, 0)?, token);
        handle.submit(&namespace, read)?;
    }
    fixture.model.remove();
    let mut tokens = Vec::new();
    for _ in 0..100_000 {
        if let Some(ended) = handle.poll() {
            assert_eq!(ended.result, Err(CommandError::Gone));
            tokens.push(ended.token);
        }
        fixture.host.relax(0);
    }
    assert_eq!(tokens, [0, 1], "{:?}, {handle:?}", controller.condition());
    let late = handle.submit(&namespace, Request::flush(2));
    let reason = late.err().map(|refused| refused.reason);
    assert_eq!(reason, Some(Refusal::ControllerFailed));
    Ok(())
}
