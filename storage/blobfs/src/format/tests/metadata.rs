//! Metadata against the model, and its rules one by one.

use proptest::prelude::*;

use super::world::{World, commands};
use super::{middle_layout, small_layout};
use crate::format::extent::Extents;
use crate::format::ids::{InodeId, Kind, Timestamp};
use crate::format::inconsistency::Inconsistency;
use crate::format::inode::Node;
use crate::format::metadata::validate::Problem;
use crate::format::{Extent, Metadata, Operation};

const NOW: Timestamp = Timestamp(9);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn does_what_the_model_does(commands in commands()) {
        let mut world = World::new(small_layout());
        for command in &commands {
            world.run(command);
            world.compare();
        }
    }

    #[test]
    fn extents_are_joined_within_groups(
        runs in prop::collection::vec((0_u64..4, 1_u32..300), 1..40),
    ) {
        let layout = middle_layout();
        let mut metadata = Metadata::new(layout);
        let id = create(&mut metadata, InodeId::ROOT, "f", Kind::File);
        let (mut next, mut size, mut all) = (layout.data().start, 0, Vec::new());
        for (gap, units) in runs {
            let extent = Extent { start: next + gap, units };
            if !layout.holds(extent) {
                next += 1;
                continue;
            }
            next = extent.end();
            all.extend(extent.start..extent.end());
            size += u64::from(units) * 4096;
            extend(&mut metadata, id, size - 1, &[extent]).unwrap();
        }
        let extents = metadata.inode(id).unwrap().extents();
        let units: Vec<u64> = extents.iter().flat_map(|extent| extent.start..extent.end()).collect();
        prop_assert_eq!(units, all);
        for pair in extents.windows(2) {
            let apart = pair[0].end() != pair[1].start
                || layout.group_of(pair[0].start) != layout.group_of(pair[1].start);
            prop_assert!(apart, "{} and {} could be one", pair[0], pair[1]);
        }
        prop_assert_eq!(metadata.validate(&[]), []);
    }
}

fn create(metadata: &mut Metadata, parent: InodeId, name: &str, kind: Kind) -> InodeId {
    let id = metadata.next_id();
    let operation = Operation::Create {
        id,
        kind,
        parent,
        name,
        modified: NOW,
    };
    metadata.apply(&operation).unwrap();
    id
}

fn extend(
    metadata: &mut Metadata,
    id: InodeId,
    size: u64,
    extents: &[Extent],
) -> Result<(), Inconsistency> {
    let operation = Operation::Extend {
        id,
        size,
        extents: extents.into(),
        modified: NOW,
    };
    metadata.apply(&operation).map(|_| ())
}

const fn extent(start: u64, units: u32) -> Extent {
    Extent { start, units }
}

#[test]
fn paths() {
    let mut metadata = Metadata::new(small_layout());
    let directory = create(&mut metadata, InodeId::ROOT, "db", Kind::Directory);
    let file = create(&mut metadata, directory, "CURRENT", Kind::File);
    let long_name = "n".repeat(256);
    let long_path = "/".repeat(4097);
    for path in ["", "/", "//", "/.", "/..", "/db/..", "./db/../."] {
        assert_eq!(metadata.resolve(path), Ok(InodeId::ROOT), "{path}");
    }
    for path in ["db", "/db", "/db/", "//db//", "/db/.", "/db/../db"] {
        assert_eq!(metadata.resolve(path), Ok(directory), "{path}");
    }
    for path in ["db/CURRENT", "/db/./CURRENT", "/db//CURRENT"] {
        assert_eq!(metadata.resolve(path), Ok(file), "{path}");
    }
    for (path, error) in [
        ("/x", Inconsistency::NotFound),
        ("/db/x/y", Inconsistency::NotFound),
        ("/db/CURRENT/", Inconsistency::NotDirectory),
        ("/db/CURRENT/.", Inconsistency::NotDirectory),
        ("/db/CURRENT/..", Inconsistency::NotDirectory),
        ("/db/CURRENT/x", Inconsistency::NotDirectory),
        ("/db/a\0b", Inconsistency::BadName),
        (&long_name, Inconsistency::NameTooLong),
        (&long_path, Inconsistency::PathTooLong),
    ] {
        assert_eq!(metadata.resolve(path), Err(error), "{path}");
    }
    assert_eq!(metadata.locate("/db/new"), Ok((directory, "new")));
    assert_eq!(metadata.locate("new//"), Ok((InodeId::ROOT, "new")));
    for (path, error) in [
        ("/", Inconsistency::BadName),
        ("/db/..", Inconsistency::BadName),
        ("/x/y", Inconsistency::NotFound),
        ("/db/CURRENT/x", Inconsistency::NotDirectory),
        (&long_name, Inconsistency::NameTooLong),
        (&long_path, Inconsistency::PathTooLong),
    ] {
        assert_eq!(metadata.locate(path), Err(error), "{path}");
    }
}

#[test]
fn names_and_numbers_are_checked() {
    let mut metadata = Metadata::new(small_layout());
    let file = create(&mut metadata, InodeId::ROOT, "f", Kind::File);
    let before = metadata.clone();
    let try_create = |metadata: &mut Metadata, id, parent, name: &str| {
        let operation = Operation::Create {
            id,
            kind: Kind::File,
            parent,
            name,
            modified: NOW,
        };
        metadata.apply(&operation).map(|_| ())
    };
    let next = metadata.next_id();
    let long = "é".repeat(128);
    for (id, parent, name, error) in [
        (file, InodeId::ROOT, "g", Inconsistency::BadId(file)),
        (
            InodeId(u64::MAX),
            InodeId::ROOT,
            "g",
            Inconsistency::BadId(InodeId(u64::MAX)),
        ),
        (next, InodeId::ROOT, "", Inconsistency::BadName),
        (next, InodeId::ROOT, "..", Inconsistency::BadName),
        (next, InodeId::ROOT, "a/b", Inconsistency::BadName),
        (next, InodeId::ROOT, &long, Inconsistency::NameTooLong),
        (next, InodeId::ROOT, "f", Inconsistency::Exists),
        (next, file, "g", Inconsistency::NotDirectory),
        (next, next, "g", Inconsistency::NoInode(next)),
    ] {
        assert_eq!(try_create(&mut metadata, id, parent, name), Err(error));
        assert_eq!(metadata, before);
    }
    try_create(
        &mut metadata,
        InodeId(next.0 + 7),
        InodeId::ROOT,
        &long[1 + 1..],
    )
    .unwrap();
    assert_eq!(
        metadata.next_id(),
        InodeId(next.0 + 8),
        "numbers may be left out"
    );
}

#[test]
fn sizes_and_extents_are_checked() {
    let layout = middle_layout();
    let start = layout.data().start;
    let mut metadata = Metadata::new(layout);
    let id = create(&mut metadata, InodeId::ROOT, "f", Kind::File);
    extend(&mut metadata, id, 8192, &[extent(start, 2)]).unwrap();
    let before = metadata.clone();
    let border = layout.group(0).end;
    for (size, extents, error) in [
        (
            8191,
            vec![],
            Inconsistency::Shrinks {
                old: 8192,
                new: 8191,
            },
        ),
        (
            8193,
            vec![],
            Inconsistency::Coverage {
                needed: 1,
                given: 0,
            },
        ),
        (
            8192,
            vec![extent(start + 9, 1)],
            Inconsistency::Coverage {
                needed: 0,
                given: 1,
            },
        ),
        (
            8193,
            vec![extent(start, 0)],
            Inconsistency::BadExtent(extent(start, 0)),
        ),
        (
            8193,
            vec![extent(0, 1)],
            Inconsistency::BadExtent(extent(0, 1)),
        ),
        (
            16_384,
            vec![extent(border - 1, 2)],
            Inconsistency::BadExtent(extent(border - 1, 2)),
        ),
        (u64::MAX, vec![], Inconsistency::TooLarge),
    ] {
        assert_eq!(extend(&mut metadata, id, size, &extents), Err(error));
        assert_eq!(metadata, before);
    }
}

#[test]
fn data_and_truncation_are_checked() {
    let layout = middle_layout();
    let start = layout.data().start;
    let mut metadata = Metadata::new(layout);
    let id = create(&mut metadata, InodeId::ROOT, "f", Kind::File);
    extend(&mut metadata, id, 8192, &[extent(start, 2)]).unwrap();
    let before = metadata.clone();
    let data = |offset, bytes: &'static [u8]| Operation::Data {
        id,
        offset,
        bytes,
        extents: Extents::Listed(&[]),
        modified: NOW,
    };
    let hole = Inconsistency::Hole {
        offset: 8193,
        size: 8192,
    };
    assert_eq!(metadata.apply(&data(8193, b"")), Err(hole));
    let coverage = Inconsistency::Coverage {
        needed: 1,
        given: 0,
    };
    assert_eq!(metadata.apply(&data(8192, b"x")), Err(coverage));
    let grows = Inconsistency::Grows {
        old: 8192,
        new: 8193,
    };
    let truncate = |id, size| Operation::Truncate {
        id,
        size,
        modified: NOW,
    };
    assert_eq!(metadata.apply(&truncate(id, 8193)), Err(grows));
    assert_eq!(
        metadata.apply(&truncate(InodeId::ROOT, 0)),
        Err(Inconsistency::IsDirectory)
    );
    assert_eq!(metadata, before);
    let effects = metadata.apply(&truncate(id, 4096)).unwrap();
    assert_eq!(effects.freed, [extent(start + 1, 1)]);
    assert_eq!(metadata.units(), 1);
}

/// Damages metadata of two files and two directories, and expects findings.
fn problems_after(spoil: impl FnOnce(&mut Metadata)) -> Vec<String> {
    let layout = middle_layout();
    let start = layout.data().start;
    let mut metadata = Metadata::new(layout);
    let outer = create(&mut metadata, InodeId::ROOT, "outer", Kind::Directory);
    create(&mut metadata, outer, "inner", Kind::Directory);
    let file = create(&mut metadata, outer, "file", Kind::File);
    let other = create(&mut metadata, outer, "other", Kind::File);
    extend(&mut metadata, file, 8192, &[extent(start, 2)]).unwrap();
    extend(&mut metadata, other, 4096, &[extent(start + 2, 1)]).unwrap();
    assert_eq!(metadata.validate(&[extent(start + 3, 5)]), []);
    spoil(&mut metadata);
    let problems = metadata.validate(&[extent(start + 3, 5)]);
    problems.iter().map(Problem::to_string).collect()
}

fn entries(metadata: &mut Metadata, id: u64) -> &mut std::collections::BTreeMap<Box<str>, InodeId> {
    let record = metadata.inodes.get_mut(&InodeId(id)).unwrap();
    record.entries_mut().unwrap()
}

fn extents(metadata: &mut Metadata, id: u64) -> &mut Vec<Extent> {
    match &mut metadata.inodes.get_mut(&InodeId(id)).unwrap().node {
        Node::File { extents, .. } => extents,
        Node::Directory { .. } => panic!("#{id} is a directory"),
    }
}

#[test]
fn every_fault_is_found() {
    let start = middle_layout().data().start;
    let dangling = problems_after(|it| {
        entries(it, 3).insert("ghost".into(), InodeId(77));
    });
    assert_eq!(
        dangling,
        [r#"the entry "ghost" of #3 leads to #77, which does not exist"#]
    );
    let name = problems_after(|it| {
        entries(it, 3).remove("file");
        entries(it, 3).insert("a/b".into(), InodeId(5));
    });
    assert_eq!(name, [r#"#3 has an entry "a/b", which is no name"#]);
    let links = problems_after(|it| {
        entries(it, 3).insert("more".into(), InodeId(5));
    });
    assert_eq!(links, ["#5 has 2 names but counts 1"]);
    let nameless = problems_after(|it| {
        entries(it, 3).remove("file");
    });
    assert_eq!(nameless, ["#5 has 0 names but counts 1"]);
    let circle = problems_after(|it| {
        entries(it, 1).clear();
        entries(it, 4).insert("outer".into(), InodeId(3));
    });
    assert_eq!(
        circle,
        [
            "the directory #3 is not where it says",
            "no path leads to the directory #3",
            "no path leads to the directory #4",
        ]
    );
    let next = problems_after(|it| it.next_id = InodeId(6));
    assert_eq!(next, ["#6 is not below the next number"]);
    let outside = problems_after(|it| extents(it, 6)[0].start = 3);
    assert_eq!(outside, ["#6 has units 3..4, which are not in one group"]);
    let coverage = problems_after(|it| extents(it, 6)[0].start -= 1);
    assert_eq!(
        coverage,
        [format!(
            "#5 and #6 both hold units {}..{}",
            start + 1,
            start + 2
        )]
    );
    let reserved = problems_after(|it| extents(it, 6)[0].start += 1);
    assert_eq!(
        reserved,
        [format!(
            "#6 and the checkpoint both hold units {}..{}",
            start + 3,
            start + 4
        )]
    );
    let short = problems_after(|it| extents(it, 5)[0].units = 1);
    assert_eq!(
        short,
        [
            "#5 has 8192 bytes in 1 units".to_owned(),
            "the files have 2 units, 3 were counted".to_owned(),
        ]
    );
}

#[test]
fn files_that_share_units_are_parted() {
    let layout = middle_layout();
    let start = layout.data().start;
    let mut metadata = Metadata::new(layout);
    let first = create(&mut metadata, InodeId::ROOT, "first", Kind::File);
    let second = create(&mut metadata, InodeId::ROOT, "second", Kind::File);
    extend(&mut metadata, first, 40_000, &[extent(start, 10)]).unwrap();
    let scattered = [
        extent(start + 20, 2),
        extent(start + 9, 5),
        extent(start + 30, 1),
    ];
    extend(&mut metadata, second, 8 * 4096, &scattered).unwrap();
    let mut other_way = metadata.clone();

    let damages = metadata.separate_files(&[], |_| 0);
    assert_eq!(damages.len(), 1);
    assert_eq!(
        damages[0].to_string(),
        "#4 shares units with another, which keeps them: it is cut from 32768 bytes to 8192"
    );
    assert_eq!(metadata.validate(&[]), []);

    let reserved = [extent(start + 31, 4)];
    let damages = other_way.separate_files(&reserved, |id| u64::from(id == second));
    assert_eq!(damages.len(), 1);
    assert_eq!(
        damages[0].to_string(),
        "#3 shares units with another, which keeps them: it is cut from 40000 bytes to 36864"
    );
    assert_eq!(other_way.validate(&reserved), []);
}
