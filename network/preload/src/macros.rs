//! How names of the C library are defined here.
//!
//! All unwind: the C library breaks a thread off that way, from within a call of its own.

/// Defines a function under the C library's name, before which it then stands. Unit tests have the function, but
/// not the name: they would stand before the test runner.
macro_rules! export {
    ($($(#[$meta:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $ret:ty $body:block)*) => {
        $(
            $(#[$meta])*
            #[cfg_attr(not(test), unsafe(no_mangle))]
            pub(crate) unsafe extern "C-unwind" fn $name($($arg: $type),*) -> $ret $body

            // Used, whether the name is given or not.
            const _: unsafe extern "C-unwind" fn($($type),*) -> $ret = $name;
        )*
    };
}

/// Defines functions like [`export`] that are points of cancellation.
macro_rules! export_points {
    ($($(#[$meta:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $ret:ty $body:block)*) => {
        export! {
            $(
                $(#[$meta])*
                fn $name($($arg: $type),*) -> $ret {
                    $crate::calls::cancel::point(|| $body)
                }
            )*
        }
    };
}
