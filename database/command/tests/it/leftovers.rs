//! That the engine holds nothing that no collection and no index owns.

use std::collections::BTreeSet;

use millrace_engine::KeyRange;
use millrace_value::ident::Ident;

use crate::support::Fixture;

/// Every key in the engine belongs to a collection or to an index that the catalog knows.
pub(crate) fn assert_no_leftovers(bed: &Fixture) {
    let catalog = bed.database.catalog();
    let mut owners = BTreeSet::from([Ident::CATALOG.prefix()]);
    let mut masks = BTreeSet::new();
    for database in catalog.databases() {
        for collection in catalog.collections(&database) {
            owners.insert(collection.ident.prefix());
            for index in &collection.indexes {
                assert!(
                    index.ready,
                    "{} of {} is unfinished",
                    index.spec.name, collection.namespace
                );
                owners.insert(index.ident.prefix());
                masks.insert(Ident::CATALOG.key(&[&b"m"[..], &index.ident.prefix()].concat()));
            }
        }
    }
    let mut cursor = bed.engine.cursor(KeyRange::all()).expect("a cursor");
    let mut found = cursor.seek_first().expect("it moves");
    while found {
        let key = cursor.key();
        let owner = key.first_chunk::<4>().expect("keys begin with an ident");
        assert!(owners.contains(owner), "nobody owns {key:?}");
        let is_mask = *owner == Ident::CATALOG.prefix() && key[Ident::LEN] == b'm';
        assert!(!is_mask || masks.contains(key), "nobody owns {key:?}");
        found = cursor.next().expect("it moves");
    }
}
