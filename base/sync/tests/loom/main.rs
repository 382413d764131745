//! Every structure in every interleaving of two or three threads, and the mutation check: with any one
//! ordering weakened a model must fail.

mod models;
mod platform;

use std::env;
use std::process::{Command, Stdio};

use millrace_sync::Site;

use models::MODELS;
use platform::weaken;

/// The variables that tell a child which model to run, and without which site.
const MODEL: &str = "MILLRACE_LOOM_MODEL";
const SITE: &str = "MILLRACE_LOOM_SITE";

#[test]
fn models_hold() {
    for (name, _, model) in MODELS {
        println!("{name}");
        models::explore(*model);
    }
}

#[test]
#[ignore = "runs one weakened model, as the child of the mutation check"]
fn child() {
    let number = |name| -> usize {
        let value = env::var(name).expect("the parent says what to run");
        value.parse().expect("a number")
    };
    weaken(Site::ALL[number(SITE)]);
    models::explore(MODELS[number(MODEL)].2);
}

/// Whether the model fails when the site is relaxed. It runs in a process of its own: what fails in the
/// middle of a model may end the process.
fn fails_without(site: usize, model: usize) -> bool {
    let status = Command::new(env::current_exe().expect("this program has a path"))
        .args(["--exact", "child", "--ignored"])
        .env(SITE, site.to_string())
        .env(MODEL, model.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    !status.expect("the child starts").success()
}

#[test]
fn every_ordering_is_needed() {
    let mut missed = Vec::new();
    for (number, site) in Site::ALL.into_iter().enumerate() {
        let mut about = (0..MODELS.len()).filter(|model| MODELS[*model].1.contains(&site));
        if !about.any(|model| fails_without(number, model)) {
            missed.push(site);
        }
    }
    assert!(missed.is_empty(), "no model fails without {missed:?}");
}
