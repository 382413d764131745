//! A history of commands, and what each of them makes when nothing fails.

use millrace_engine::{CommitSeq, Engine as _};

use super::fixture::Fixture;
use super::model::{Answer, Model};
use super::workload::Step;

/// The history, and what it makes when nothing fails.
pub(crate) struct Recording {
    pub(crate) steps: Vec<Step>,
    answers: Vec<Answer>,
    /// The model before the first step, then after each.
    pub(crate) models: Vec<Model>,
    /// The engine's commit sequence number at the same places.
    pub(crate) commit_seqs: Vec<CommitSeq>,
    /// After so many steps the engine is synced, and the commands up to there are thereby acknowledged.
    steps_per_sync: usize,
}

impl Recording {
    /// Does the steps on an empty database. `after_step` is told of the commit sequence number after each step, and of
    /// the one up to which everything was acknowledged with that step.
    pub(crate) fn new(
        fixture: &Fixture,
        steps: Vec<Step>,
        steps_per_sync: usize,
        after_step: &mut dyn FnMut(CommitSeq, Option<CommitSeq>),
    ) -> Self {
        let mut recording = Self {
            steps: Vec::new(),
            answers: Vec::new(),
            models: vec![Model::default()],
            commit_seqs: vec![fixture.engine.last_commit_seq()],
            steps_per_sync,
        };
        let mut model = Model::default();
        for (number, step) in steps.iter().enumerate() {
            let expected = model.apply(step);
            let (answer, written) = fixture.step(step).expect("nothing fails");
            assert_eq!(answer, expected, "step {number}: {step:?}");
            let last = fixture.engine.last_commit_seq();
            let durable = recording
                .is_synced(number)
                .then(|| fixture.engine.sync().expect("nothing fails"));
            after_step(last, durable);
            assert_eq!(fixture.contents(), model, "step {number}: {step:?}");
            let before = recording.commit_seqs[number];
            let told = written.unwrap_or(before);
            let failed = matches!(answer, Answer::Failed(_));
            assert!(
                failed || told >= last,
                "step {number}: {step:?} made {last}, told of {told}"
            );
            recording.answers.push(answer);
            recording.models.push(model.clone());
            recording.commit_seqs.push(last);
        }
        recording.steps = steps;
        fixture.check("without a fault");
        recording
    }

    const fn is_synced(&self, number: usize) -> bool {
        number % self.steps_per_sync == self.steps_per_sync - 1
    }

    /// Runs the steps from `first` on until the engine fails or nothing is left; the number of the step
    /// that failed. `durable` follows what is acknowledged.
    pub(crate) fn run(
        &self,
        fixture: &Fixture,
        first: usize,
        durable: &mut CommitSeq,
        case: &str,
    ) -> Option<usize> {
        for (number, step) in self.steps.iter().enumerate().skip(first) {
            let Ok((answer, _)) = fixture.step(step) else {
                return Some(number);
            };
            assert_eq!(answer, self.answers[number], "{case}: step {number}");
            assert_eq!(
                fixture.engine.last_commit_seq(),
                self.commit_seqs[number + 1],
                "{case}"
            );
            if self.is_synced(number) {
                match fixture.engine.sync() {
                    Ok(commit_seq) => *durable = commit_seq,
                    Err(_) => return Some(number),
                }
            }
        }
        None
    }

    /// What is found at `commit_seq` is the history up to there; how many steps that is, if it is a whole
    /// number of them.
    pub(crate) fn check_prefix(
        &self,
        fixture: &Fixture,
        commit_seq: CommitSeq,
        case: &str,
    ) -> Option<usize> {
        let found = fixture.contents();
        // Steps that commit nothing share a commit sequence number; from the last of them the history can go on.
        if let Some(steps) = self
            .commit_seqs
            .iter()
            .rposition(|&other| other == commit_seq)
        {
            assert_eq!(
                found, self.models[steps],
                "{case}: {commit_seq} is after {steps} steps"
            );
            return Some(steps);
        }
        let after = self
            .commit_seqs
            .partition_point(|&other| other < commit_seq);
        let (before, after) = (&self.models[after - 1], &self.models[after]);
        assert!(
            found.is_between(before, after),
            "{case}: {commit_seq}: {found:#?} of {after:#?}"
        );
        None
    }
}
