//! Definition of functions under names of the C library.
//!
//! All of them unwind: the C library cancels a thread by unwinding its stack, from within a call of its own.

/// Defines functions under names of the C library, ahead of its own definitions.
///
/// # Contract
/// The caller of each function keeps the contract that POSIX or the C library states for the name: arguments are in
/// range, and each pointer is null where the contract allows that, or valid for the access that the contract describes,
/// for the whole call. The expansion carries the one `unsafe` block of the function: all unsafe operations of a body
/// rest on that contract, and on nothing else. A body without unsafe operations is marked `safe fn`.
///
/// Unit tests have the functions, but not the names, which would stand before those of the test runner.
macro_rules! export {
    () => {};
    (
        $(#[$meta:meta])*
        safe fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $ret:ty $body:block
        $($rest:tt)*
    ) => {
        export! { @define [$(#[$meta])*] $name [$($arg: $type),*] $ret { $body } }
        export! { $($rest)* }
    };
    (
        $(#[$meta:meta])*
        fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $ret:ty $body:block
        $($rest:tt)*
    ) => {
        export! {
            @define [$(#[$meta])*] $name [$($arg: $type),*] $ret {
                // SAFETY: the caller keeps the contract of the C function of this name, see `export`.
                unsafe { $body }
            }
        }
        export! { $($rest)* }
    };
    (@define [$($meta:tt)*] $name:ident [$($arg:ident: $type:ty),*] $ret:ty $body:block) => {
        $($meta)*
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub(crate) unsafe extern "C-unwind" fn $name($($arg: $type),*) -> $ret $body

        // A use in any case, also without the name.
        const _: unsafe extern "C-unwind" fn($($type),*) -> $ret = $name;
    };
}

/// Defines functions like [`export`], with its contract, that are cancellation points.
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
