//! Programs that know nothing of user-level sockets print the same under them as under the kernel's TCP.

mod bed;

use bed::{Bed, Totals};

/// Runs a program both ways and compares. The slabs say that its bytes went past the kernel.
fn same(name: &str) {
    let totals = compare(&Bed::new(), name);
    assert_eq!(totals.proxied, 0, "{name}: {totals:?}");
}

/// The same where a plane stands between the two.
fn same_by_plane(name: &str) {
    let totals = compare(&Bed::proxied(), name);
    assert!(totals.proxied > 0, "{name}: {totals:?}");
}

fn compare(bed: &Bed, name: &str) -> Totals {
    let program = bed.compile(name);
    let by_kernel = bed.run(&program, false);
    let by_user = bed.run(&program, true);
    assert_eq!(
        by_user.text, by_kernel.text,
        "{name}: at user level and by the kernel"
    );
    let totals = by_user.totals;
    assert!(
        totals.connects > 0 && totals.received > 0,
        "{name}: {totals:?}"
    );
    assert_eq!(totals.kernel_connects, 0, "{name}: {totals:?}");
    assert_eq!(totals.kernel_accepts, 0, "{name}: {totals:?}");
    totals
}

macro_rules! programs {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                same(stringify!($name));
            }
        )*

        /// By a plane.
        mod by_plane {
            $(
                #[test]
                fn $name() {
                    super::same_by_plane(stringify!($name));
                }
            )*
        }
    };
}

programs! {
    bulk copies duplicates echo full half_close inherit many names numbers options peek pipes reset streams timeouts urgent workers
}
