#![allow(warnings)]
mod bed;
use bed::{Bed, Outcome, PATIENCE, arena, filled, polled, quick, single};
use millrace_nvme::*;
use millrace_nvme_model as model;
use model::{Fault, FaultRule, Faults, Target, When};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn rule(target: Target, when: When, fault: Fault) -> Faults {
    Faults { rules: vec![FaultRule { target, when, fault }], ..Faults::default() }
}
fn small() -> model::Options {
    model::Options {
        namespaces: vec![model::NamespaceOptions { block_size: 512, blocks: 4096, ..Default::default() }],
        ..model::Options::default()
    }
}

#[test]
fn nine_resets_while_idle() -> Outcome {
    let bed = Bed::new(small())?;
    let controller = bed.open(quick())?;
    for n in 0..9 {
        controller.reset().map_err(|e| format!("reset {n}: {e}"))?;
    }
    Ok(())
}

#[test]
fn retry_is_rung_by_the_same_poll() -> Outcome {
    let bed = Bed::new(small())?;
    let controller = bed.open(quick())?;
    let ns = controller.namespace(1)?;
    let (arena, mut pair) = (arena(&controller)?, polled(&controller, 8)?);
    bed.model.set_faults(rule(Target::Io, When::Nth(1), Fault::Fail(model::Status::INTERNAL)));
    pair.submit(&ns, Request::read(Lba(0), filled(&arena, 512, 0)?, 0))?;
    pair.ring();
    for _ in 0..5 { bed.model.step(); }
    // "the interrupt": one poll, as an event loop does
    assert_eq!(pair.poll(|_| {}), 0);
    let before = bed.model.counters().commands;
    for _ in 0..50 { bed.model.step(); }
    assert_eq!(bed.model.counters().commands, before + 1, "the retry was told to the controller");
    Ok(())
}

#[test]
fn many_aborts() -> Outcome {
    let bed = Bed::new(model::Options { aborts_max: 256, ..small() })?;
    let controller = bed.open(quick())?;
    let ns = controller.namespace(1)?;
    let (arena, mut pair) = (arena(&controller)?, polled(&controller, 64)?);
    bed.model.set_faults(rule(Target::Io, When::Always, Fault::Delay(2500)));
    for t in 0..60 {
        pair.submit(&ns, Request::read(Lba(0), filled(&arena, 512, 0)?, t))?;
    }
    // let them be seen and time out once (200 ms = 2000 steps)
    let mut health = None;
    for i in 0..2400u32 {
        pair.poll(|_| {});
        if i > 2000 && i % 64 == 1 && health.is_none() { 
            health = Some(controller.health().map(|_| ()));
        }
        bed.host.relax(0);
    }
    println!("health {health:?} resets {}", controller.resets());
    assert_eq!(controller.resets(), 0);
    Ok(())
}

#[test]
fn atomic_write_fits_a_command() -> Outcome {
    let bed = Bed::new(model::Options {
        transfer_max: 1, atomic_write: 256, atomic_write_power_fail: 256, ..small() })?;
    let controller = bed.open(quick())?;
    let ns = controller.namespace(1)?;
    println!("transfer_max {} atomic {} blocks", controller.transfer_max(), ns.atomic_write());
    assert!(u64::from(ns.atomic_write()) * 512 <= controller.transfer_max());
    Ok(())
}

#[test]
fn stale_namespace_after_format() -> Outcome {
    let bed = Bed::new(small())?;
    let controller = bed.open(quick())?;
    let ns = controller.namespace(1)?;
    let (arena, mut pair) = (arena(&controller)?, polled(&controller, 8)?);
    let other = ns.data().formats.iter().position(|f| f.block_shift == 12).ok_or("none")?;
    controller.format(1, other, Erase::No, PATIENCE)?;
    // a victim that Rust code holds
    let victim = filled(&arena, 64 << 10, 0x77)?;
    // a two page read by the stale namespace: 16 blocks of 512, now of 4096: 16 pages, the second page is read as a list
    let mut buffer = filled(&arena, 8192, 0)?;
    let base = victim.iova().0;
    for i in 0..512u64 { 
        let at = 4096 + 8 * i as usize;
        buffer[at..at + 8].copy_from_slice(&(base + (i % 16) * 4096).to_le_bytes());
    }
    let r = single(&mut pair, &ns, Request::read(Lba(0), buffer, 0));
    println!("{:?}", r.map(|c| c.result).map_err(|e| e.to_string()));
    println!("violations {:?} dma {:?}", bed.model.violations(), bed.model.dma_faults());
    assert!(victim.iter().all(|b| *b == 0x77), "the device wrote to a buffer that no request named");
    Ok(())
}

#[test]
fn pages_of_64_kib() -> Outcome {
    let bed = Bed::new(model::Options { page_min: 4, page_max: 4, transfer_max: 3, ..small() })?;
    let controller = bed.open(quick())?;
    let ns = controller.namespace(1)?;
    let (arena, mut pair) = (arena(&controller)?, polled(&controller, 8)?);
    for len in [512, 4096, 64 << 10, 1 << 20] {
        let w = single(&mut pair, &ns, Request::write(Lba(3), filled(&arena, len, 9)?, 0))?;
        w.result?;
    }
    assert_eq!(bed.model.violations(), []);
    Ok(())
}

/// Host that runs something while the driver waits.
struct HookHost { model: model::Controller, time: AtomicU64, on: AtomicBool, hook: Mutex<Option<Box<dyn FnMut() + Send>>> }
impl std::fmt::Debug for HookHost { fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { f.write_str("HookHost") } }
impl Host for HookHost {
    fn now(&self) -> Duration { Duration::from_nanos(self.time.load(Ordering::Relaxed)) }
    fn relax(&self, _: u32) {
        self.model.step();
        self.time.fetch_add(100_000, Ordering::Relaxed);
        if self.on.load(Ordering::Relaxed) {
            if let Ok(mut h) = self.hook.try_lock() { if let Some(h) = h.as_mut() { h(); } }
        }
    }
}
fn hook_host(bed: &Bed) -> Arc<HookHost> {
    Arc::new(HookHost { model: bed.model.clone(), time: AtomicU64::new(0), on: AtomicBool::new(false), hook: Mutex::new(None) })
}

#[test]
fn polling_while_another_resets() -> Outcome {
    let bed = Bed::new(small())?;
    let host = hook_host(&bed);
    let controller = Controller::open(bed.model.function(), Arc::<HookHost>::clone(&host), Options { shadow_doorbells: false, ..quick() })?;
    let ns = controller.namespace(1)?;
    let (arena, mut pair) = (arena(&controller)?, polled(&controller, 8)?);
    single(&mut pair, &ns, Request::read(Lba(0), filled(&arena, 512, 0)?, 0))?.result?;
    let mut n = 0;
    *host.hook.lock().unwrap() = Some(Box::new(move || {
        n += 1;
        if n < 5 { pair.submit(&ns, Request::read(Lba(0), filled(&arena, 512, 0).unwrap(), 0)).unwrap(); }
        pair.poll(|_| {});
    }));
    host.on.store(true, Ordering::Relaxed);
    controller.reset()?;
    host.on.store(false, Ordering::Relaxed);
    for _ in 0..300 { bed.model.step(); }
    let v = bed.model.violations();
    *host.hook.lock().unwrap() = None;
    assert!(v.is_empty(), "{v:?}");
    Ok(())
}

#[test]
fn a_queue_pair_made_during_a_reset() -> Outcome {
    let bed = Bed::new(small())?;
    let host = hook_host(&bed);
    let controller = Controller::open(bed.model.function(), Arc::<HookHost>::clone(&host), quick())?;
    let go = Arc::new((AtomicBool::new(false), AtomicBool::new(false)));
    let g = Arc::clone(&go);
    *host.hook.lock().unwrap() = Some(Box::new(move || {
        g.0.store(true, Ordering::SeqCst);
        while !g.1.load(Ordering::SeqCst) { std::thread::yield_now(); }
    }));
    host.on.store(true, Ordering::SeqCst);
    let c = Arc::clone(&controller);
    let resetter = std::thread::spawn(move || c.reset().unwrap());
    while !go.0.load(Ordering::SeqCst) { std::thread::yield_now(); }
    let c = Arc::clone(&controller);
    let maker = std::thread::spawn(move || polled(&c, 8).unwrap());
    std::thread::sleep(Duration::from_millis(300));
    go.1.store(true, Ordering::SeqCst);
    resetter.join().unwrap();
    let mut pair = maker.join().unwrap();
    assert_eq!(controller.resets(), 1);
    pair.poll(|_| {});
    assert_eq!(controller.resets(), 1, "polling a new pair resets the controller");
    Ok(())
}

#[test]
fn a_dropped_handles_request_goes_to_the_next_handle() -> Outcome {
    let bed = Bed::new(small())?;
    let controller = bed.open(quick())?;
    let ns = controller.namespace(1)?;
    let arena = arena(&controller)?;
    let queue = SharedQueue::new(polled(&controller, 8)?, 4);
    let mut first = queue.handle();
    first.submit(&ns, Request::read(Lba(0), filled(&arena, 512, 0)?, 77))?;
    drop(first);
    let mut second = queue.handle();
    for _ in 0..100 {
        let got = second.poll();
        assert!(got.is_none(), "a completion that it did not ask for: {got:?}");
        bed.model.step();
    }
    Ok(())
}

#[test]
fn a_request_in_the_inbox_when_the_controller_fails() -> Outcome {
    let bed = Bed::new(small())?;
    let controller = bed.open(quick())?;
    let ns = controller.namespace(1)?;
    let arena = arena(&controller)?;
    // depth 1: the second request stays in the inbox while the first fails
    let queue = SharedQueue::new(polled(&controller, 1)?, 4);
    let mut handle = queue.handle();
    handle.submit(&ns, Request::read(Lba(0), filled(&arena, 512, 0)?, 1))?;
    handle.submit(&ns, Request::read(Lba(0), filled(&arena, 512, 0)?, 2))?;
    bed.model.remove();
    let mut ended = 0;
    for _ in 0..100_000 {
        ended += usize::from(handle.poll().is_some());
        bed.host.relax(0);
    }
    assert_eq!(ended, 2, "{:?}, {handle:?}", controller.condition());
    Ok(())
}

#[test]
fn cache_setting_survives_resets() -> Outcome {
    let bed = Bed::new(small())?;
    let controller = bed.open(quick())?;
    controller.set_cache_used(false)?;
    controller.reset()?;
    assert!(!controller.is_cache_used()?, "the cache is on again after a reset");
    Ok(())
}

#[test]
fn stale_shadows_after_a_reset() -> Outcome {
    let bed = Bed::new(small())?;
    let host = hook_host(&bed);
    let controller = Controller::open(bed.model.function(), Arc::<HookHost>::clone(&host), quick())?;
    let ns = controller.namespace(1)?;
    let (arena, mut pair) = (arena(&controller)?, polled(&controller, 32)?);
    for n in 0..10 {
        single(&mut pair, &ns, Request::write(Lba(n), filled(&arena, 512, 1)?, n))?.result?;
    }
    controller.reset()?;
    // the controller is faster than the driver: two steps a round
    let m = bed.model.clone();
    *host.hook.lock().unwrap() = Some(Box::new(move || { m.step(); m.step(); }));
    host.on.store(true, Ordering::Relaxed);
    let before = bed.model.counters();
    pair.poll(|_| {});
    for _ in 0..20 { bed.model.step(); pair.poll(|_| {}); }
    let after = bed.model.counters();
    println!("writes {} resets {} violations {:?}", after.writes - before.writes, controller.resets(), bed.model.violations());
    assert_eq!(after.writes, before.writes, "old commands are executed again");
    Ok(())
}

#[test]
fn stale_shadows_of_a_dropped_pair() -> Outcome {
    let bed = Bed::new(small())?;
    let host = hook_host(&bed);
    let controller = Controller::open(bed.model.function(), Arc::<HookHost>::clone(&host), quick())?;
    let ns = controller.namespace(1)?;
    let (arena, mut pair) = (arena(&controller)?, polled(&controller, 32)?);
    for n in 0..10 {
        single(&mut pair, &ns, Request::write(Lba(n), filled(&arena, 512, 1)?, n))?.result?;
    }
    drop(pair);
    let m = bed.model.clone();
    *host.hook.lock().unwrap() = Some(Box::new(move || { m.step(); m.step(); }));
    host.on.store(true, Ordering::Relaxed);
    let before = bed.model.counters();
    let mut pair = polled(&controller, 32)?;
    for _ in 0..20 { bed.model.step(); pair.poll(|_| {}); }
    let after = bed.model.counters();
    println!("io commands {} resets {} violations {:?}", after.commands - before.commands, controller.resets(), bed.model.violations());
    assert_eq!(controller.resets(), 0);
    Ok(())
}

#[test]
fn many_aborts2() -> Outcome {
    let bed = Bed::new(model::Options { aborts_max: 256, ..small() })?;
    let controller = bed.open(quick())?;
    let ns = controller.namespace(1)?;
    let (arena, mut pair) = (arena(&controller)?, polled(&controller, 64)?);
    bed.model.set_faults(rule(Target::Io, When::Always, Fault::Delay(2500)));
    for t in 0..60 {
        pair.submit(&ns, Request::read(Lba(0), filled(&arena, 512, 0)?, t))?;
    }
    for i in 0..4000u32 {
        pair.poll(|_| {});
        bed.host.relax(0);
        let before = controller.resets();
        if i == 2300 { println!("under way {} health {:?}, resets {} then {}", pair.under_way(), controller.health().map(|_| ()).map_err(|e| e.to_string()), before, controller.resets()); }
    }
    println!("resets {}", controller.resets());
    Ok(())
}

#[test]
fn no_vectors_left_although_some_are_unused() -> Outcome {
    let bed = Bed::new(model::Options { vectors: 3, ..small() })?;
    let controller = bed.open(Options { interrupts: true, ..quick() })?;
    let _a = polled(&controller, 4)?;
    let _b = polled(&controller, 4)?;
    let c = controller.queue_pair(QueueOptions { depth: 4, waiting: Waiting::Interrupt });
    assert!(c.is_ok(), "{:?}", c.err().map(|e| e.to_string()));
    Ok(())
}

#[test]
fn two_drivers_of_one_function() -> Outcome {
    let bed = Bed::new(small())?;
    let function = bed.model.function();
    let host: Arc<dyn Host> = Arc::<bed::StepHost>::clone(&bed.host);
    let first = Controller::open(Arc::clone(&function), Arc::clone(&host), quick())?;
    let second = Controller::open(Arc::clone(&function), Arc::clone(&host), quick());
    assert_eq!(second.err().map(|error| error.kind()), Some(ErrorKind::Invalid));
    drop(first);
    Controller::open(function, host, quick())?;
    Ok(())
}
