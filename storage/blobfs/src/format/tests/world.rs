//! Commands that are done by the model and by operations, with a device of bytes in memory.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::model::{Model, Node};
use crate::format::ids::{InodeId, Kind, Timestamp};
use crate::format::{Extent, Layout, Metadata, Operation, Overlay};

/// Picks of directories, files and names are taken modulo what there is.
#[derive(Clone, Debug)]
pub(super) enum Command {
    Create {
        at: (u8, u8),
        directory: bool,
    },
    Link {
        from: (u8, u8),
        to: (u8, u8),
    },
    Unlink {
        at: (u8, u8),
    },
    Rename {
        from: (u8, u8),
        to: (u8, u8),
    },
    /// Bytes into the journal.
    Data {
        file: u8,
        offset: u16,
        len: u16,
        fill: u8,
    },
    /// Appends bytes, and writes all bytes back.
    Extend {
        file: u8,
        len: u16,
        fill: u8,
    },
    Truncate {
        file: u8,
        size: u16,
    },
    SetModified {
        at: (u8, u8),
        modified: u64,
    },
}

pub(super) fn commands() -> impl Strategy<Value = Vec<Command>> {
    let at = || (any::<u8>(), any::<u8>());
    let command = prop_oneof![
        4 => (at(), prop::bool::weighted(0.3))
            .prop_map(|(at, directory)| Command::Create { at, directory }),
        1 => (at(), at()).prop_map(|(from, to)| Command::Link { from, to }),
        1 => at().prop_map(|at| Command::Unlink { at }),
        2 => (at(), at()).prop_map(|(from, to)| Command::Rename { from, to }),
        3 => (any::<u8>(), any::<u16>(), 0_u16..9000, any::<u8>())
            .prop_map(|(file, offset, len, fill)| Command::Data { file, offset, len, fill }),
        3 => (any::<u8>(), 0_u16..20_000, any::<u8>())
            .prop_map(|(file, len, fill)| Command::Extend { file, len, fill }),
        1 => (any::<u8>(), any::<u16>()).prop_map(|(file, size)| Command::Truncate { file, size }),
        1 => (at(), any::<u64>())
            .prop_map(|(at, modified)| Command::SetModified { at, modified }),
    ];
    prop::collection::vec(command, 1..80)
}

const NAMES: [&str; 5] = ["a", "b", "c.sst", "CURRENT", "Größe"];

/// The model, and what it is compared with.
pub(super) struct World {
    pub(super) model: Model,
    pub(super) metadata: Metadata,
    /// The device, of each unit as much as is a file's.
    pub(super) on_device_end: Vec<u8>,
    free: BTreeSet<u64>,
    /// The payload of each transaction, of one operation each.
    pub(super) journal: Vec<Vec<u8>>,
}

impl World {
    pub(super) fn new(layout: Layout) -> Self {
        let bytes = layout.units() * u64::from(layout.unit_bytes());
        Self {
            model: Model::new(),
            metadata: Metadata::new(layout),
            on_device_end: vec![0xee; usize::try_from(bytes).unwrap()],
            free: layout.data().collect(),
            journal: Vec::new(),
        }
    }

    fn path(&self, (directory, name): (u8, u8)) -> String {
        let directories = self.model.directories();
        let directory = &directories[usize::from(directory) % directories.len()];
        format!("{directory}/{}", NAMES[usize::from(name) % NAMES.len()])
    }

    fn file(&self, pick: u8) -> Option<String> {
        let files = self.model.files();
        let index = usize::from(pick).checked_rem(files.len())?;
        Some(files[index].clone())
    }

    /// Applies an operation, which must end as the model said, and keeps it as a transaction.
    fn apply(&mut self, operation: &Operation<'_>, expected: Result<(), crate::ErrorKind>) {
        let before = self.metadata.clone();
        match self.metadata.apply(operation) {
            Ok(effects) => {
                assert_eq!(expected, Ok(()), "{operation:?}");
                for unit in effects
                    .freed
                    .iter()
                    .flat_map(|extent| extent.start..extent.end())
                {
                    assert!(self.free.insert(unit), "unit {unit} was freed twice");
                }
                let mut payload = Vec::new();
                operation.encode(&mut payload);
                self.journal.push(payload);
            }
            Err(why) => {
                assert_eq!(expected, Err(why.kind()), "{operation:?}: {why}");
                assert_eq!(self.metadata, before, "an error changes nothing");
            }
        }
    }

    /// Units for a file to grow from `old` to `new` bytes, in runs of up to three; nothing if there are not
    /// enough.
    fn allocate(&mut self, old: usize, new: usize) -> Option<Vec<Extent>> {
        let layout = *self.metadata.layout();
        let units = |bytes: usize| layout.file_data().units(u64::try_from(bytes).unwrap());
        let needed = usize::try_from(units(new) - units(old)).unwrap();
        if self.free.len() < needed {
            return None;
        }
        let mut extents: Vec<Extent> = Vec::new();
        for _ in 0..needed {
            let start = self.free.pop_first().expect("there are enough");
            match extents.last_mut() {
                Some(last) if last.end() == start && last.units < 3 => last.units += 1,
                _ => extents.push(Extent { start, units: 1 }),
            }
        }
        Some(extents)
    }

    pub(super) fn run(&mut self, command: &Command) {
        match *command {
            Command::Create { at, directory } => self.create(&self.path(at), directory),
            Command::Link { from, to } => {
                let (from, to) = (self.path(from), self.path(to));
                let expected = self.model.link(&from, &to);
                let Ok(id) = self.metadata.resolve(&from) else {
                    return;
                };
                let (parent, name) = self.metadata.locate(&to).unwrap();
                self.apply(&Operation::Link { id, parent, name }, expected);
            }
            Command::Unlink { at } => {
                let path = self.path(at);
                let expected = self.model.unlink(&path);
                let (parent, name) = self.metadata.locate(&path).unwrap();
                self.apply(&Operation::Unlink { parent, name }, expected);
            }
            Command::Rename { from, to } => {
                let (from, to) = (self.path(from), self.path(to));
                let expected = self.model.rename(&from, &to);
                let from = self.metadata.locate(&from).unwrap();
                let to = self.metadata.locate(&to).unwrap();
                self.apply(&Operation::Rename { from, to }, expected);
            }
            Command::Data {
                file,
                offset,
                len,
                fill,
            } => self.data(file, offset.into(), len.into(), fill),
            Command::Extend { file, len, fill } => self.extend(file, len.into(), fill),
            Command::Truncate { file, size } => self.truncate(file, size.into()),
            Command::SetModified { at, modified } => {
                if let Ok(id) = self.metadata.resolve(&self.path(at)) {
                    let modified = Timestamp(modified);
                    self.apply(&Operation::SetModified { id, modified }, Ok(()));
                    assert_eq!(self.metadata.inode(id).unwrap().modified(), modified);
                }
            }
        }
    }

    fn create(&mut self, path: &str, directory: bool) {
        let expected = self.model.create(path, directory);
        let (parent, name) = self.metadata.locate(path).unwrap();
        let operation = Operation::Create {
            id: InodeId(self.metadata.next_id().0 + 2),
            kind: if directory {
                Kind::Directory
            } else {
                Kind::File
            },
            parent,
            name,
            modified: Timestamp(5),
        };
        self.apply(&operation, expected);
    }

    fn data(&mut self, file: u8, offset: usize, len: usize, fill: u8) {
        let Some(path) = self.file(file) else {
            return;
        };
        let size = self.model.content(&path).len();
        let offset = offset % (size + 1);
        let end = size.max(offset + len);
        let Some(extents) = self.allocate(size, end) else {
            return;
        };
        let steps = (0..=u8::MAX).cycle().take(len);
        let bytes: Vec<u8> = steps.map(|step| fill.wrapping_add(step)).collect();
        let content = self.model.content(&path);
        content.resize(end, 0);
        content[offset..offset + len].copy_from_slice(&bytes);
        let operation = Operation::Data {
            id: self.metadata.resolve(&path).unwrap(),
            offset: offset.try_into().unwrap(),
            bytes: &bytes,
            extents: (&extents).into(),
            modified: Timestamp(6),
        };
        self.apply(&operation, Ok(()));
    }

    fn extend(&mut self, file: u8, len: usize, fill: u8) {
        let Some(path) = self.file(file) else {
            return;
        };
        let size = self.model.content(&path).len();
        let Some(added) = self.allocate(size, size + len) else {
            return;
        };
        self.model.content(&path).resize(size + len, fill);
        let id = self.metadata.resolve(&path).unwrap();
        let extents: Vec<Extent> = [self.metadata.inode(id).unwrap().extents(), &added].concat();
        let content = self.model.content(&path).clone();
        write_back(
            &mut self.on_device_end,
            self.metadata.layout(),
            &extents,
            &content,
        );
        let operation = Operation::Extend {
            id,
            size: (size + len).try_into().unwrap(),
            extents: (&added).into(),
            modified: Timestamp(7),
        };
        self.apply(&operation, Ok(()));
    }

    fn truncate(&mut self, file: u8, size: usize) {
        let Some(path) = self.file(file) else {
            return;
        };
        let content = self.model.content(&path);
        let size = size % (content.len() + 1);
        content.truncate(size);
        let operation = Operation::Truncate {
            id: self.metadata.resolve(&path).unwrap(),
            size: size.try_into().unwrap(),
            modified: Timestamp(8),
        };
        self.apply(&operation, Ok(()));
    }

    /// That metadata is as the model says, and without fault.
    pub(super) fn compare(&self) {
        assert_eq!(self.metadata.validate(&[]), []);
        let held = u64::try_from(self.free.len()).unwrap() + self.metadata.units();
        let data = self.metadata.layout().data();
        assert_eq!(held, data.end - data.start, "no unit is lost");
        let mut names = 1;
        for (path, node) in &self.model.nodes {
            let id = self.metadata.resolve(path).unwrap();
            let record = self.metadata.inode(id).unwrap();
            match node {
                Node::Directory => {
                    assert_eq!(record.kind(), Kind::Directory);
                    names += self.metadata.children(id).unwrap().len();
                }
                Node::File(index) => {
                    assert_eq!(record.kind(), Kind::File);
                    let content = &self.model.contents[*index];
                    assert_eq!(record.size(), u64::try_from(content.len()).unwrap());
                    assert_eq!(record.links() as usize, self.model.links(*index));
                }
            }
        }
        assert_eq!(names, self.model.nodes.len(), "there are no other names");
    }

    /// That the device with `overlay` holds what the model says.
    pub(super) fn compare_contents(&self, metadata: &Metadata, overlay: &Overlay) {
        for (path, node) in &self.model.nodes {
            let Node::File(index) = node else {
                continue;
            };
            let id = metadata.resolve(path).unwrap();
            let mut bytes = read_on_device(&self.on_device_end, metadata, id);
            overlay.patch(id, 0, &mut bytes);
            assert!(bytes == self.model.contents[*index], "{path} differs");
        }
    }
}

fn unit_offsets(layout: &Layout, extents: &[Extent]) -> Vec<usize> {
    let units = extents.iter().flat_map(|extent| extent.start..extent.end());
    units
        .map(|unit| usize::try_from(unit * u64::from(layout.unit_bytes())).unwrap())
        .collect()
}

/// Bytes of a file in a unit.
pub(super) fn unit_payload(layout: &Layout) -> usize {
    usize::try_from(layout.file_data().bytes(1)).unwrap()
}

fn write_back(on_device_end: &mut [u8], layout: &Layout, extents: &[Extent], content: &[u8]) {
    let units = content.chunks(unit_payload(layout));
    for (at, bytes) in unit_offsets(layout, extents).into_iter().zip(units) {
        on_device_end[at..at + bytes.len()].copy_from_slice(bytes);
    }
}

fn read_on_device(on_device_end: &[u8], metadata: &Metadata, id: InodeId) -> Vec<u8> {
    let record = metadata.inode(id).unwrap();
    let payload = unit_payload(metadata.layout());
    let mut bytes: Vec<u8> = unit_offsets(metadata.layout(), record.extents())
        .into_iter()
        .flat_map(|at| &on_device_end[at..at + payload])
        .copied()
        .collect();
    bytes.truncate(usize::try_from(record.size()).unwrap());
    bytes
}
