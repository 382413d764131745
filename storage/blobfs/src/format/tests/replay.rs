//! Replay of any part of a history.

use proptest::prelude::*;

use super::world::{World, commands, unit_payload};
use super::{key, small_layout};
use crate::ErrorKind;
use crate::format::damage::Damage;
use crate::format::extent::Extents;
use crate::format::ids::{InodeId, Kind, Timestamp};
use crate::format::inconsistency::Inconsistency;
use crate::format::replay::Replay;
use crate::format::{Extent, Metadata, Operation};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn any_prefix_is_the_state_at_that_time(commands in commands(), has_checksums in any::<bool>()) {
        let layout = small_layout().with_data_checksums(has_checksums);
        let mut world = World::new(layout);
        let mut replay = Replay::new(Metadata::new(layout), Vec::new());
        let mut replayed = 0;
        for command in &commands {
            world.run(command);
            for payload in &world.journal[replayed..] {
                replay.apply_transaction(payload).unwrap();
            }
            replayed = world.journal.len();
            prop_assert_eq!(replay.metadata(), &world.metadata);
            // Contents take long to compare.
            if replayed % 8 == 1 {
                world.compare_contents(replay.metadata(), replay.overlay());
            }
        }
        let end = replay.finish();
        prop_assert_eq!(end.damages, []);
        prop_assert_eq!(&end.metadata, &world.metadata);
        world.compare_contents(&end.metadata, &end.overlay);
    }

    #[test]
    fn a_checkpoint_and_the_rest_is_the_whole(
        before in commands(),
        after in commands(),
        has_checksums in any::<bool>(),
    ) {
        let layout = small_layout().with_data_checksums(has_checksums);
        let mut world = World::new(layout);
        for command in &before {
            world.run(command);
        }
        let checkpoint = world.metadata.clone();
        let overlay_then = replay_all(&checkpoint, &world.journal, Metadata::new(layout));
        let image = super::checkpoint_image::decode_whole(&checkpoint, key());
        prop_assert_eq!(&image, &checkpoint);
        // A checkpoint is made after the data before it is written back.
        for (id, offset, bytes) in overlay_then {
            write(&mut world, id, offset, &bytes);
        }
        let rest = world.journal.len();
        for command in &after {
            world.run(command);
        }
        let mut replay = Replay::new(image, Vec::new());
        // As one transaction.
        replay.apply_transaction(&world.journal[rest..].concat()).unwrap();
        let end = replay.finish();
        prop_assert_eq!(&end.metadata, &world.metadata);
        world.compare_contents(&end.metadata, &end.overlay);
    }
}

/// The overlay after all of `journal`.
fn replay_all(
    expected: &Metadata,
    journal: &[Vec<u8>],
    from: Metadata,
) -> Vec<(InodeId, u64, Vec<u8>)> {
    let mut replay = Replay::new(from, Vec::new());
    for payload in journal {
        replay.apply_transaction(payload).unwrap();
    }
    let end = replay.finish();
    assert_eq!(&end.metadata, expected);
    let overlay = &end.overlay;
    let files = overlay.files();
    files
        .flat_map(|id| {
            overlay
                .of(id)
                .map(move |(at, bytes)| (id, at, bytes.to_vec()))
        })
        .collect()
}

/// Writes bytes of a file to their units.
fn write(world: &mut World, id: InodeId, offset: u64, bytes: &[u8]) {
    let layout = *world.metadata.layout();
    let unit_bytes = u64::from(layout.unit_bytes());
    let payload = unit_payload(&layout) as u64;
    let extents = world.metadata.inode(id).unwrap().extents();
    let units: Vec<u64> = extents
        .iter()
        .flat_map(|extent| extent.start..extent.end())
        .collect();
    for (at, byte) in (offset..).zip(bytes) {
        let unit = units[usize::try_from(at / payload).unwrap()];
        let address = unit * unit_bytes + at % payload;
        world.on_device_end[usize::try_from(address).unwrap()] = *byte;
    }
}

const NOW: Timestamp = Timestamp(4);

fn payload(operations: &[Operation<'_>]) -> Vec<u8> {
    let mut payload = Vec::new();
    for operation in operations {
        operation.encode(&mut payload);
    }
    payload
}

const fn create(id: u64, parent: InodeId, name: &str) -> Operation<'_> {
    Operation::Create {
        id: InodeId(id),
        kind: Kind::File,
        parent,
        name,
        modified: NOW,
    }
}

#[test]
fn what_does_not_apply_is_corruption() {
    let missing = payload(&[Operation::Unlink {
        parent: InodeId::ROOT,
        name: "nothing",
    }]);
    let mut replay = Replay::new(Metadata::new(small_layout()), Vec::new());
    let error = replay.apply_transaction(&missing).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption);
    let error = replay.apply_transaction(&[99]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption);
}

#[test]
fn after_damage_what_is_left_is_used() {
    let layout = small_layout();
    let start = layout.data().start;
    let mut metadata = Metadata::new(layout);
    metadata
        .apply(&create(3, InodeId::ROOT, "nameless"))
        .unwrap();
    let extents = [Extent { start, units: 4 }];
    let extend = |id: u64, size, extents| Operation::Extend {
        id: InodeId(id),
        size,
        extents: Extents::Listed(extents),
        modified: NOW,
    };
    metadata.apply(&extend(3, 16_384, &extents)).unwrap();
    let mut replay = Replay::new(metadata, vec![Damage::Pages(1..2)]);
    let transaction = payload(&[
        // The journal knows the file by a name that the checkpoint has lost.
        Operation::Unlink {
            parent: InodeId::ROOT,
            name: "lost name",
        },
        create(10, InodeId::ROOT, "new"),
        extend(
            10,
            8192,
            &[Extent {
                start: start + 1,
                units: 2,
            }],
        ),
        Operation::Data {
            id: InodeId(3),
            offset: 0,
            bytes: &[1; 8000],
            extents: Extents::Listed(&[]),
            modified: NOW,
        },
        // The directory of this one is lost.
        create(11, InodeId(8), "orphan"),
        extend(
            12,
            1,
            &[Extent {
                start: start + 20,
                units: 1,
            }],
        ),
    ]);
    replay.apply_transaction(&transaction).unwrap();
    let end = replay.finish();
    assert_eq!(end.metadata.validate(&[]), []);
    let texts: Vec<String> = end.damages.iter().map(Damage::to_string).collect();
    assert_eq!(
        texts,
        [
            "pages 1 to 1 of the checkpoint are lost",
            r#"removal of "lost name" in #1 was not replayed: no such file or directory"#,
            r#"creation of #11 as "orphan" in #8 was not replayed: there is no inode #8"#,
            r##"#11 has lost its name and is now "/lost+found/#11""##,
            "extension of #12 to 1 bytes was not replayed: there is no inode #12",
            "#3 shares units with another, which keeps them: it is cut from 16384 bytes to 4096",
        ]
    );
    let new = end.metadata.resolve("/new").unwrap();
    assert_eq!(
        end.metadata.inode(new).unwrap().size(),
        8192,
        "the later one keeps its units"
    );
    let overlay: Vec<usize> = end.overlay.of(InodeId(3)).map(|it| it.1.len()).collect();
    assert_eq!(overlay, [4096]);
    assert_eq!(end.metadata.lookup(InodeId(2), "#11"), Ok(InodeId(11)));
    assert_eq!(
        end.metadata.lookup(InodeId(2), "#12"),
        Err(Inconsistency::NotFound)
    );
}
