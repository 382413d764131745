//! How names of the C library are defined here.

/// Defines a function under the C library's name, before which it then stands. Unit tests have the function, but
/// not the name: they would stand before the test runner.
macro_rules! export {
    ($($(#[$meta:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $ret:ty $body:block)*) => {
        $(
            $(#[$meta])*
            #[cfg_attr(not(test), unsafe(no_mangle))]
            pub(crate) unsafe extern "C" fn $name($($arg: $type),*) -> $ret $body

            // Used, whether the name is given or not.
            const _: unsafe extern "C" fn($($type),*) -> $ret = $name;
        )*
    };
}
