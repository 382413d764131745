//! Faults in words, for command lines.

use crate::command::{admin, nvm};
use crate::faults::{Fault, FaultRule, Faults, Target, When};
use crate::{Error, ErrorKind, Result, Status};

/// Commands by name.
const COMMANDS: [(&str, Target); 16] = [
    ("io", Target::Io),
    ("read", Target::IoOpcode(nvm::READ)),
    ("write", Target::IoOpcode(nvm::WRITE)),
    ("flush", Target::IoOpcode(nvm::FLUSH)),
    ("compare", Target::IoOpcode(nvm::COMPARE)),
    ("zeroes", Target::IoOpcode(nvm::WRITE_ZEROES)),
    ("deallocate", Target::IoOpcode(nvm::DATASET_MANAGEMENT)),
    ("admin", Target::Admin),
    ("identify", Target::AdminOpcode(admin::IDENTIFY)),
    ("log", Target::AdminOpcode(admin::GET_LOG_PAGE)),
    ("get-features", Target::AdminOpcode(admin::GET_FEATURES)),
    ("set-features", Target::AdminOpcode(admin::SET_FEATURES)),
    ("abort", Target::AdminOpcode(admin::ABORT)),
    (
        "create-cq",
        Target::AdminOpcode(admin::CREATE_COMPLETION_QUEUE),
    ),
    (
        "create-sq",
        Target::AdminOpcode(admin::CREATE_SUBMISSION_QUEUE),
    ),
    ("format", Target::AdminOpcode(admin::FORMAT_NVM)),
];

/// Faults without a number by name.
const PLAIN: [(&str, Fault); 11] = [
    ("lose", Fault::Lose),
    ("fatal", Fault::Fatal),
    ("remove", Fault::Remove),
    ("wrong-id", Fault::WrongId),
    ("id-out-of-range", Fault::IdOutOfRange),
    ("twice", Fault::CompleteTwice),
    ("head-beyond", Fault::HeadBeyond),
    ("wrong-queue", Fault::WrongQueue),
    ("garbage", Fault::Garbage),
    ("overwrite", Fault::Overwrite),
    ("forget", Fault::Forget),
];

impl Faults {
    /// Syntax of the words that [`Faults::add`] accepts, for help texts and errors.
    pub const WORDS: &str = "\
COMMANDS[@WHEN]=WHAT, or what the controller does as a whole:
  COMMANDS  io, admin; read, write, flush, compare, zeroes, deallocate; identify, log, get-features,
            set-features, abort, create-cq, create-sq, format; io:OPCODE, admin:OPCODE in hexadecimal
  WHEN      N: the Nth of them; N+: from the Nth on; 1/N: one in N, by chance; nothing: each
  WHAT      fail:STATUS (type and code, hexadecimal: 281 is an unrecovered read error; 4281 with Do Not
            Retry), delay:STEPS, reorder:STEPS, lose, fatal, remove, wrong-id, id-out-of-range, twice,
            head-beyond, wrong-queue, garbage, overwrite, forget
  as a whole: never-ready, never-disabled, never-shut-down, remove-at:STEP, fatal-at:STEP, reset-at:STEP,
            unasked:N (completions nobody asked for, once in N steps), random-identify:CNS (hexadecimal),
            random-logs, random-features";

    /// Adds a fault that is said in words, such as `read@3=fail:281`. Of rules that strike the same command
    /// the one that was added first counts.
    ///
    /// # Errors
    /// [`ErrorKind::Options`] if it is none of [`Faults::WORDS`].
    pub fn add(&mut self, words: &str) -> Result<()> {
        let understood = match words.split_once('=') {
            Some((commands, what)) => rule(commands, what).map(|rule| self.rules.push(rule)),
            None => self.add_whole(words),
        };
        understood.ok_or_else(|| {
            let context = format!("{words:?} is no fault; one is {}", Self::WORDS);
            Error::new(ErrorKind::Options, context)
        })
    }

    fn add_whole(&mut self, words: &str) -> Option<()> {
        let (name, number) = match words.split_once(':') {
            Some((name, number)) => (name, Some(number)),
            None => (words, None),
        };
        match (name, number) {
            ("never-ready", None) => self.never_ready = true,
            ("never-disabled", None) => self.never_disabled = true,
            ("never-shut-down", None) => self.never_shut_down = true,
            ("random-logs", None) => self.logs_random = true,
            ("random-features", None) => self.features_random = true,
            ("remove-at", Some(step)) => self.remove_at = Some(step.parse().ok()?),
            ("fatal-at", Some(step)) => self.fatal_at = Some(step.parse().ok()?),
            ("reset-at", Some(step)) => self.reset_at = Some(step.parse().ok()?),
            ("unasked", Some(period)) => self.unasked = positive(period)?,
            ("random-identify", Some(cns)) => {
                self.identify_random = Some(u8::from_str_radix(cns, 16).ok()?);
            }
            _ => return None,
        }
        Some(())
    }
}

fn rule(commands: &str, what: &str) -> Option<FaultRule> {
    let (commands, when) = match commands.split_once('@') {
        Some((commands, when)) => (commands, when_of(when)?),
        None => (commands, When::Always),
    };
    Some(FaultRule {
        target: target(commands)?,
        when,
        fault: fault(what)?,
    })
}

fn target(word: &str) -> Option<Target> {
    let named = COMMANDS.iter().find(|(name, _)| *name == word);
    if let Some((_, target)) = named {
        return Some(*target);
    }
    let (queue, opcode) = word.split_once(':')?;
    let opcode = u8::from_str_radix(opcode, 16).ok()?;
    match queue {
        "io" => Some(Target::IoOpcode(opcode)),
        "admin" => Some(Target::AdminOpcode(opcode)),
        _ => None,
    }
}

fn when_of(word: &str) -> Option<When> {
    if let Some(period) = word.strip_prefix("1/") {
        return positive(period).map(When::OneIn);
    }
    match word.strip_suffix('+') {
        Some(number) => positive(number).map(When::From),
        None => positive(word).map(When::Nth),
    }
}

fn fault(word: &str) -> Option<Fault> {
    let plain = PLAIN.iter().find(|(name, _)| *name == word);
    if let Some((_, fault)) = plain {
        return Some(*fault);
    }
    let (name, number) = word.split_once(':')?;
    match name {
        "fail" => {
            let status = u16::from_str_radix(number, 16).ok()?;
            // Fifteen bits, of which success is no failure.
            let fails = status >> 15 == 0 && !Status(status).is_success();
            fails.then_some(Fault::Fail(Status(status)))
        }
        "delay" => number.parse().ok().map(Fault::Delay),
        "reorder" => number.parse().ok().map(Fault::Reorder),
        _ => None,
    }
}

/// A number that counts something and is not zero.
fn positive<T: std::str::FromStr + Default + PartialEq>(word: &str) -> Option<T> {
    word.parse().ok().filter(|number| *number != T::default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_in_words() {
        let cases = [
            ("io=lose", Target::Io, When::Always, Fault::Lose),
            (
                "read@3=fail:281",
                Target::IoOpcode(2),
                When::Nth(3),
                Fault::Fail(Status::READ_ERROR),
            ),
            (
                "write@10+=delay:500",
                Target::IoOpcode(1),
                When::From(10),
                Fault::Delay(500),
            ),
            (
                "io@1/1000=reorder:50",
                Target::Io,
                When::OneIn(1000),
                Fault::Reorder(50),
            ),
            (
                "admin:0c=fail:4002",
                Target::AdminOpcode(0x0c),
                When::Always,
                Fault::Fail(Status::INVALID_FIELD.do_not_retry()),
            ),
        ];
        for (words, target, when, fault) in cases {
            let mut faults = Faults::default();
            faults.add(words).expect(words);
            let rule = FaultRule {
                target,
                when,
                fault,
            };
            assert_eq!(faults.rules, [rule], "{words}");
        }
    }

    #[test]
    fn faults_of_the_whole_in_words() {
        let mut faults = Faults::default();
        for words in [
            "never-ready",
            "never-disabled",
            "never-shut-down",
            "remove-at:1",
            "fatal-at:2",
            "reset-at:3",
            "unasked:4",
            "random-identify:1f",
            "random-logs",
            "random-features",
        ] {
            let before = faults.clone();
            faults.add(words).expect(words);
            assert_ne!(faults, before, "{words}");
        }
        let expected = Faults {
            never_ready: true,
            never_disabled: true,
            never_shut_down: true,
            remove_at: Some(1),
            fatal_at: Some(2),
            reset_at: Some(3),
            unasked: 4,
            identify_random: Some(0x1f),
            logs_random: true,
            features_random: true,
            ..Faults::default()
        };
        assert_eq!(faults, expected);
    }

    #[test]
    fn every_name_is_told() {
        let names = COMMANDS.iter().map(|(name, _)| *name);
        for name in names.chain(PLAIN.iter().map(|(name, _)| *name)) {
            assert!(Faults::WORDS.contains(name), "{name}");
        }
    }

    #[test]
    fn other_words_are_refused() {
        for words in [
            "",
            "=",
            "io",
            "io=",
            "reads=lose",
            "io@=lose",
            "io@0=lose",
            "io@1/0=lose",
            "io@-1=lose",
            "io@2/3=lose",
            "io=fail",
            "io=fail:0",
            "io=fail:8281",
            "io=lose:1",
            "io=delay",
            "io:100=lose",
            "queue:1=lose",
            "never-ready:1",
            "remove-at",
            "unasked:0",
            "random-identify:100",
        ] {
            let mut faults = Faults::default();
            let error = faults.add(words).expect_err(words);
            assert_eq!(error.kind(), ErrorKind::Options);
            assert_eq!(faults, Faults::default());
        }
    }
}
