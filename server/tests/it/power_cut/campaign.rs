//! Images of one history.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::{fs, thread};

use bson::doc;
use millrace_block::{Device, Image, MemoryDevice};
use millrace_engine::Engine as _;
use millrace_power_cut::{Cursor, Survivors};
use millrace_random::Random;

use super::recorded::{Acknowledged, Recorded};
use super::stack;

/// On one image in so many the history goes on.
const IMAGES_PER_CONTINUATION: u64 = 16;

/// Power cuts at the events of a history.
pub(crate) struct Campaign<'a> {
    recorded: &'a Recorded,
    cursor: Cursor,
    random: Random,
    /// An image is made at one in so many events.
    stride: u64,
    points: usize,
    pub(crate) images: usize,
    /// Images that lack something that was acknowledged.
    pub(crate) lossy: usize,
    /// Images that end in the middle of a command.
    partial: usize,
    /// Images with more than was acknowledged.
    more: usize,
    /// Images on which the history went on to its end.
    continued: usize,
}

impl<'a> Campaign<'a> {
    /// With images at so many points at most, or nearly so, chosen by the seed.
    pub(crate) fn new(recorded: &'a Recorded, points_max: usize) -> Self {
        let cursor = recorded.device.cursor();
        Self {
            stride: cursor.events().div_ceil(points_max) as u64,
            cursor,
            recorded,
            random: Random::new(recorded.seed),
            points: 0,
            images: 0,
            lossy: 0,
            partial: 0,
            more: 0,
            continued: 0,
        }
    }

    /// Cuts the power.
    pub(crate) fn run(mut self) -> Self {
        loop {
            let is_last = self.cursor.point() == self.cursor.events();
            if self.random.below(self.stride) == 0 || is_last {
                self.points += 1;
                self.cut();
            }
            if !self.cursor.advance() {
                return self;
            }
        }
    }

    /// All kinds of images at a point.
    fn cut(&mut self) {
        // With nothing that may be there or not all kinds are one.
        let kinds = match self.cursor.loose() {
            0 => &Survivors::ALL[..1],
            _ => &Survivors::ALL[..],
        };
        for survivors in kinds {
            let seed = self.random.number();
            let case = format!(
                "seed {}, point {} of {}, {survivors:?} by {seed}",
                self.recorded.seed,
                self.cursor.point(),
                self.cursor.events()
            );
            let image = self.cursor.image(*survivors, seed);
            let kept = KeptOnPanic(&image);
            self.check(&image, &case);
            drop(kept);
            self.images += 1;
        }
    }

    /// What was acknowledged is on an image, in order, and nothing that never was.
    fn check(&mut self, image: &Image, case: &str) {
        let Recorded { recording, .. } = self.recorded;
        let point = self.cursor.point();
        let (durable, last) = (
            self.recorded.durable_at(point),
            self.recorded.last_at(point),
        );
        let disk = MemoryDevice::on(image.clone(), self.cursor.geometry().clone());
        let disk: Arc<dyn Device> = Arc::new(disk.expect("an image is of the geometry's size"));
        stack::check_volume(&disk, case);
        let (fixture, commit_seq) = stack::open_at(Arc::clone(&disk), case);
        let is_lost = commit_seq < durable;
        assert!(
            !is_lost || self.recorded.when == Acknowledged::TooEarly,
            "{case}: {commit_seq} is left, {durable} was acknowledged"
        );
        self.lossy += usize::from(is_lost);
        assert!(commit_seq <= last, "{case}: {commit_seq} is left of {last}");
        fixture.check(case);
        let whole = recording.check_prefix(&fixture, commit_seq, case);
        self.more += usize::from(commit_seq > durable);
        self.partial += usize::from(whole.is_none());
        // It is as good as new. What was cut off may have been removed by the opening.
        let steps = whole.filter(|_| fixture.engine.last_commit_seq() == commit_seq);
        match steps.filter(|_| self.random.below(IMAGES_PER_CONTINUATION) == 0) {
            Some(steps) => {
                let failed = recording.run(&fixture, steps, &mut durable.clone(), case);
                assert_eq!(failed, None, "{case}");
                assert_eq!(Some(&fixture.contents()), recording.models.last(), "{case}");
                self.continued += 1;
            }
            None => drop(fixture.run(&doc! {"insert": "e", "documents": [{"_id": -1}]})),
        }
        fixture.check(case);
        drop(fixture);
        stack::check_volume(&disk, case);
    }
}

impl fmt::Display for Campaign<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} events, cut at {}: {} images, {} with more than was acknowledged, {} in the middle of a command, \
             {} continued",
            self.cursor.events(),
            self.points,
            self.images,
            self.more,
            self.partial,
            self.continued
        )
    }
}

/// Writes an image into a file if the test fails with it: a run does not repeat, as RocksDB has threads.
pub(crate) struct KeptOnPanic<'a>(pub(crate) &'a Image);

impl Drop for KeptOnPanic<'_> {
    fn drop(&mut self) {
        if !thread::panicking() {
            return;
        }
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("power-cut.img");
        let mut bytes = vec![0; usize::try_from(self.0.bytes()).unwrap_or(0)];
        self.0.read(0, &mut bytes);
        let written = fs::write(&path, bytes);
        eprintln!("the image is in {}: {written:?}", path.display());
    }
}
