//! The declaration of a file's C functions, with the list of their names.

/// Declares functions that C calls, one after the other, and a list of their names. A default is
/// for C++ (`cargo xtask wholememory`), and a comment above a function names its header.
macro_rules! exports {
    ($($(#[$doc:meta])* fn $name:ident($($argument:ident: $type:ty $(= $default:expr)?),* $(,)?) $(-> $answer:ty)? $body:block)*) => {
        $($(#[$doc])*
        ///
        /// # Safety
        /// Each pointer is null, or points to a value of its name and type. A handle may
        /// be any number.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) $(-> $answer)? $body)*

        /// The functions of this file.
        pub(super) const NAMES: &[&str] = &[$(stringify!($name)),*];
    };
}
pub(super) use exports;
