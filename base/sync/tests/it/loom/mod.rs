//! Every structure in the interleavings of two or three threads, and the mutation check: with any one ordering
//! weakened each model that is about it must fail, and say what was expected.

mod models;
mod platform;

use std::env;
use std::process::Command;

use millrace_sync::Site;

use models::MODELS;
use platform::{weaken, weaker};

/// The variables that tell a child which model to run, which of its sites to weaken, and to which ordering.
const MODEL: &str = "MILLRACE_LOOM_MODEL";
const SITE: &str = "MILLRACE_LOOM_SITE";
const ORDERING: &str = "MILLRACE_LOOM_ORDERING";

#[test]
fn models_hold() {
    for model in MODELS {
        println!("{}", model.name);
        models::explore(model);
    }
}

#[test]
#[ignore = "runs one weakened model, as the child of the mutation check"]
fn child() {
    let number = |name| -> usize {
        let value = env::var(name).expect("the parent says what to run");
        value.parse().expect("a number")
    };
    let model = &MODELS[number(MODEL)];
    let (site, _) = model.fails_without[number(SITE)];
    weaken(site, weaker(site)[number(ORDERING)]);
    models::explore(model);
}

/// More steps than any run of a model has; loom gives up beyond.
const STEPS_MAX: usize = 1_000;

/// What a weakened model says when it fails; none if it holds. It runs in a process of its own: what fails in
/// the middle of a model may end the process.
fn failure(model: usize, site: usize, ordering: usize, steps_max: usize) -> Option<String> {
    let child = Command::new(env::current_exe().expect("this program has a path"))
        .args(["--exact", "loom::child", "--ignored", "--nocapture"])
        .env(MODEL, model.to_string())
        .env(SITE, site.to_string())
        .env(ORDERING, ordering.to_string())
        .env("LOOM_MAX_BRANCHES", steps_max.to_string())
        .env("RUST_BACKTRACE", "0")
        .output()
        .expect("the child starts");
    if child.status.success() {
        return None;
    }
    let said = String::from_utf8_lossy(&child.stderr);
    // Others may follow from the first one: threads that are unwound, values that leak.
    let first = said.split("panicked at ").nth(1).unwrap_or(&said);
    Some(first.trim().to_owned())
}

#[test]
#[ignore = "mutation check: `make soak` runs it"]
fn every_ordering_is_needed() {
    let mut wrong = Vec::new();
    for (number, model) in MODELS.iter().enumerate() {
        for (place, (site, expected)) in model.fails_without.iter().enumerate() {
            for (step, ordering) in weaker(*site).iter().enumerate() {
                let what = format!("{}, {site:?} {ordering:?}", model.name);
                match failure(number, place, step, STEPS_MAX) {
                    None => wrong.push(format!("{what}: holds")),
                    Some(said) if said.contains(expected) => {}
                    Some(said) => wrong.push(format!("{what}: fails by {said}")),
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_model_that_is_cut_short_proves_nothing() {
    let said = failure(0, 0, 0, 10).expect("ten steps are not enough");
    let (_, expected) = MODELS[0].fails_without[0];
    assert!(said.contains("maximum number of branches"), "{said}");
    assert!(!said.contains(expected), "{said}");
}

#[test]
fn every_site_is_in_a_model() {
    let named = |site: &Site| {
        let mut sites = MODELS.iter().flat_map(|model| model.fails_without);
        sites.any(|(named, _)| named == site)
    };
    let missed: Vec<_> = Site::ALL.iter().filter(|site| !named(site)).collect();
    assert!(missed.is_empty(), "no model is about {missed:?}");
}
