//! Plain values: copies, parts of them, paths, machines, sizes. They do not depend on the code that
//! uses them.

pub(crate) mod chunk;
pub(crate) mod copy;
pub(crate) mod machine;
pub(crate) mod observation;
pub(crate) mod path;
pub(crate) mod sizes;
pub(crate) mod stream;
pub(crate) mod times;
