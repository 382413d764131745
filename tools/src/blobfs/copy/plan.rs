//! What is to be copied where.

use std::collections::HashSet;

use millrace_blobfs::Timestamp;

use super::files::{Files, Found, Links};
use crate::blobfs::{ToolError, CpOptions, ErrorKind, Place};
use crate::terminal::quantity::bytes;

/// The least that a file of some bytes takes on a volume is a multiple of this, or of a block.
const UNIT_BYTES_MIN: u64 = 4096;

/// Something to do.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) to: Place,
    pub(super) work: Work,
}

/// What to do.
#[derive(Clone, Debug)]
pub(super) enum Work {
    /// Make a directory.
    Directory,
    /// Copy a file.
    File {
        from: Place,
        bytes: u64,
        modified: Timestamp,
    },
}

/// All that is to be done, in order.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
    pub(super) files: u64,
    pub(super) bytes: u64,
    /// What is left out.
    pub(super) skipped: Vec<String>,
}

/// Refuses to copy from the host to the host.
pub(super) fn check_sides(sources: &[Place], target: &Place) -> Result<(), ToolError> {
    let mut hosts = sources
        .iter()
        .filter(|source| matches!(source, Place::Host(_)));
    match (hosts.next(), target) {
        (Some(source), Place::Host(_)) => {
            let context = format!("{source} and {target} are both the host's");
            Err(ToolError::new(ErrorKind::Usage, context).advise(format!(
                "a path of the volume has ':' before it, as :/{source}"
            )))
        }
        _ => Ok(()),
    }
}

impl Plan {
    /// Looks at what there is and makes a plan that can be done.
    pub(super) fn new(
        files: &Files<'_>,
        sources: &[Place],
        target: &Place,
        options: &CpOptions,
    ) -> Result<Self, ToolError> {
        let mut planning = Planning {
            files,
            options,
            plan: Self {
                steps: Vec::new(),
                files: 0,
                bytes: 0,
                skipped: Vec::new(),
            },
            targets: HashSet::new(),
            added_bytes: 0,
            replaced_bytes: 0,
        };
        let into = match files.look(target, Links::Follow)? {
            Some(Found::Directory) => true,
            _ if sources.len() > 1 => {
                let context = format!("{target} is no directory to put several things into");
                return Err(ToolError::new(ErrorKind::Usage, context));
            }
            Some(_) => false,
            None => {
                planning.check_above(target)?;
                false
            }
        };
        for source in sources {
            let to = match into {
                true => files.within(target, source)?,
                false => target.clone(),
            };
            planning.add_source(source, to)?;
        }
        planning.check_space(target)?;
        Ok(planning.plan)
    }
}

/// A plan that is being made.
struct Planning<'p> {
    files: &'p Files<'p>,
    options: &'p CpOptions,
    plan: Plan,
    /// Files that there will be.
    targets: HashSet<Place>,
    /// Bytes of the volume that new files take, and those that they replace give back.
    added_bytes: u64,
    replaced_bytes: u64,
}

impl Planning<'_> {
    /// Refuses a target in a directory that is not there.
    fn check_above(&self, target: &Place) -> Result<(), ToolError> {
        let above = Files::above(target);
        match self.files.look(&above, Links::Follow)? {
            Some(Found::Directory) => Ok(()),
            _ => {
                let context = format!("there is no directory {above} to put {target} into");
                let error = ToolError::new(ErrorKind::Usage, context);
                Err(match &above {
                    Place::Volume(path) => error.advise(format!(
                        "`millrace blobfs mkdir {} {path} --parents`",
                        self.options.spec
                    )),
                    Place::Host(path) => error.advise(format!("`mkdir -p {}`", path.display())),
                })
            }
        }
    }

    fn add_source(&mut self, source: &Place, to: Place) -> Result<(), ToolError> {
        let Some(found) = self.files.look(source, Links::Follow)? else {
            let context = format!("there is no {source}");
            let error = ToolError::new(ErrorKind::Usage, context);
            return Err(match source {
                Place::Volume(_) => {
                    let spec = &self.options.spec;
                    error.advise(format!("`millrace blobfs ls {spec} -R` lists all there is"))
                }
                Place::Host(path) => error.advise(format!(
                    "a path of the volume has ':' before it, as :/{}",
                    path.display()
                )),
            });
        };
        if let (Place::Volume(from), Place::Volume(to)) = (source, &to) {
            if to.is_within(from) {
                let context = format!("{from} cannot be copied into itself, to {to}");
                return Err(ToolError::new(ErrorKind::Usage, context));
            }
        }
        self.add(source, found, to)
    }

    fn add(&mut self, from: &Place, found: Found, to: Place) -> Result<(), ToolError> {
        let there = self.files.look(&to, Links::Follow)?;
        match (found, there) {
            (Found::Special(what), _) if self.options.skip_special => {
                self.plan.skipped.push(format!("{from}, {what}"));
                Ok(())
            }
            (Found::Special(what), _) => {
                let context = format!("{from} is {what}, which a volume cannot have");
                Err(ToolError::new(ErrorKind::Usage, context)
                    .advise("--skip-special leaves out all that is neither file nor directory"))
            }
            (Found::Directory, None | Some(Found::Directory)) => self.add_directory(from, &to),
            (Found::File { bytes, modified }, None | Some(Found::File { .. })) => {
                self.add_file(from, bytes, modified, to)
            }
            (found, Some(_)) => {
                let what = match found {
                    Found::Directory => "a directory",
                    _ => "a file",
                };
                let context = format!("{from} is {what}, and {to} is none: it is in the way");
                Err(ToolError::new(ErrorKind::NotForced, context)
                    .advise("remove it, or choose another name"))
            }
        }
    }

    fn add_directory(&mut self, from: &Place, to: &Place) -> Result<(), ToolError> {
        let is_new = self.files.look(to, Links::Follow)?.is_none();
        if is_new && self.targets.insert(to.clone()) {
            self.plan.steps.push(Step {
                to: to.clone(),
                work: Work::Directory,
            });
        }
        for entry in self.files.entries(from)? {
            // It may have gone meanwhile.
            let Some(found) = self.files.look(&entry, Links::Show)? else {
                continue;
            };
            let to = self.files.within(to, &entry)?;
            self.add(&entry, found, to)?;
        }
        Ok(())
    }

    fn add_file(
        &mut self,
        from: &Place,
        bytes: u64,
        modified: Timestamp,
        to: Place,
    ) -> Result<(), ToolError> {
        if !self.targets.insert(to.clone()) {
            let context = format!("{from} is not the only one that is to become {to}");
            return Err(ToolError::new(ErrorKind::Usage, context));
        }
        if let Some(Found::File { bytes, .. }) = self.files.look(&to, Links::Follow)? {
            if !self.options.force {
                let context = format!("{from} was not copied: there is a file {to} already");
                return Err(ToolError::new(ErrorKind::NotForced, context)
                    .advise("--force replaces the files that are in the way"));
            }
            self.replaced_bytes += self.whole_units(bytes);
        }
        self.added_bytes = self.added_bytes.saturating_add(self.whole_units(bytes));
        self.plan.files += 1;
        self.plan.bytes = self.plan.bytes.saturating_add(bytes);
        self.plan.steps.push(Step {
            to,
            work: Work::File {
                from: from.clone(),
                bytes,
                modified,
            },
        });
        Ok(())
    }

    fn whole_units(&self, bytes: u64) -> u64 {
        let block_bytes = self.files.mounted.volume.block_bytes();
        let unit = UNIT_BYTES_MIN.max(block_bytes.into());
        bytes.div_ceil(unit).saturating_mul(unit)
    }

    /// Refuses what cannot fit. What just fits may still lack room for what is written about it.
    fn check_space(&self, target: &Place) -> Result<(), ToolError> {
        let free = self.files.mounted.volume.space().free_bytes;
        let needed = self.added_bytes.saturating_sub(self.replaced_bytes);
        if needed <= free || matches!(target, Place::Host(_)) {
            return Ok(());
        }
        let spec = &self.options.spec;
        let (needed, free) = (bytes(needed.into()), bytes(free.into()));
        let context = format!("{spec} has no room: {needed} are needed, {free} are free");
        Err(ToolError::new(ErrorKind::Volume, context)
            .advise("`millrace blobfs rm` makes room; or take a larger device"))
    }
}
