//! NCCL's binary interface, from its public header: codes, types, the unique id, the configuration.
//!
//! A C enum is an integer here: a program may pass a value that this library does not know.

use std::ffi::{c_char, c_int, c_uint};

/// The result of every function.
#[repr(transparent)]
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Code(pub c_int);

/// A result in a form that works with `?`.
pub(crate) type Outcome<T = ()> = Result<T, Code>;

macro_rules! codes {
    ($($name:ident = $value:literal, $text:literal;)*) => {
        impl Code {
            $(#[doc = $text] pub const $name: Self = Self($value);)*

            /// The text of `ncclGetErrorString`.
            pub(crate) fn text(self) -> &'static std::ffi::CStr {
                const TEXTS: &[(c_int, &str)] = &[$(($value, concat!($text, "\0"))),*];
                let found = TEXTS.iter().find(|(value, _)| *value == self.0);
                let bytes = found.map_or("unknown result code\0", |(_, text)| *text).as_bytes();
                std::ffi::CStr::from_bytes_with_nul(bytes).unwrap_or_default()
            }
        }
    };
}

codes! {
    SUCCESS = 0, "no error";
    CUDA = 1, "unhandled cuda error";
    SYSTEM = 2, "unhandled system error";
    INTERNAL = 3, "internal error";
    INVALID_ARGUMENT = 4, "invalid argument";
    INVALID_USAGE = 5, "invalid usage";
    REMOTE = 6, "remote process exited or there was a network error";
    IN_PROGRESS = 7, "NCCL operation in progress";
}

impl Code {
    /// `Ok` on success, else the code.
    ///
    /// # Errors
    /// Every code but `ncclSuccess`.
    pub(crate) fn ok(self) -> Outcome {
        if self == Self::SUCCESS { Ok(()) } else { Err(self) }
    }
}

impl From<Outcome> for Code {
    fn from(outcome: Outcome) -> Self {
        outcome.err().unwrap_or(Self::SUCCESS)
    }
}

/// `ncclUniqueId`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct UniqueId(pub [u8; 128]);

/// `ncclComm_t`: the bits of a pointer that only this library may follow.
#[repr(transparent)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Handle(pub usize);

/// `ncclConfig_t` of version 2.19. Later versions append fields, and say so in `size`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Config {
    pub(crate) size: usize,
    pub(crate) magic: c_uint,
    pub(crate) version: c_uint,
    pub(crate) blocking: c_int,
    pub(crate) cga_cluster_size: c_int,
    pub(crate) min_ctas: c_int,
    pub(crate) max_ctas: c_int,
    pub(crate) net_name: *const c_char,
    pub(crate) split_share: c_int,
}

/// `NCCL_API_MAGIC`.
const MAGIC: c_uint = 0xcafe_beef;
/// `NCCL_CONFIG_UNDEF_INT`.
const UNDEFINED: c_int = c_int::MIN;

impl Config {
    /// Do calls on a communicator of this configuration wait for their end?
    ///
    /// # Errors
    /// The reason, if a field has no valid value.
    pub(crate) fn blocking(&self) -> Result<bool, &'static str> {
        let chosen = |value: c_int, default: c_int| if value == UNDEFINED { default } else { value };
        let (least, most) = (chosen(self.min_ctas, 1), chosen(self.max_ctas, c_int::MAX));
        match () {
            () if self.magic != MAGIC => Err("ncclConfig_t was not initialized by NCCL_CONFIG_INITIALIZER"),
            () if self.size < std::mem::offset_of!(Self, cga_cluster_size) => {
                Err("ncclConfig_t is too short")
            }
            () if !(0..=1).contains(&chosen(self.blocking, 1)) => {
                Err("blocking of ncclConfig_t is not 0 or 1")
            }
            () if least < 1 || most < 1 || least > most => {
                Err("minCTAs or maxCTAs of ncclConfig_t is not valid")
            }
            () => Ok(chosen(self.blocking, 1) == 1),
        }
    }

    /// The fields that a caller's structure has; those behind its end are undefined.
    ///
    /// # Safety
    /// `place` is readable for as many bytes as its own field `size` says, and for that field.
    pub(crate) unsafe fn read(place: *const Self) -> Self {
        let mut config = Self {
            size: 0,
            magic: 0,
            version: 0,
            blocking: UNDEFINED,
            cga_cluster_size: UNDEFINED,
            min_ctas: UNDEFINED,
            max_ctas: UNDEFINED,
            net_name: std::ptr::null(),
            split_share: UNDEFINED,
        };
        // SAFETY: the first field is readable by contract.
        let size = unsafe { place.cast::<usize>().read_unaligned() };
        let known = size.min(size_of::<Self>());
        // SAFETY: both are `known` bytes long, and every bit pattern of the fields is valid.
        unsafe {
            std::ptr::copy_nonoverlapping(place.cast::<u8>(), (&raw mut config).cast::<u8>(), known);
        }
        Self { size, ..config }
    }
}

/// The width of an `ncclDataType_t`, in bytes.
pub(crate) fn width(datatype: c_int) -> Option<usize> {
    const WIDTHS: [usize; 10] = [1, 1, 4, 4, 8, 8, 2, 4, 8, 2];
    WIDTHS.get(usize::try_from(datatype).ok()?).copied()
}

#[cfg(test)]
mod tests {
    //! Hazard (API conformance): a configuration of another version is misread.
    use super::*;

    fn config() -> Config {
        // SAFETY: a length of zero: no field is read but the length.
        let empty = unsafe { Config::read((&raw const NOTHING).cast()) };
        Config { size: size_of::<Config>(), magic: MAGIC, version: 21903, ..empty }
    }

    static NOTHING: usize = 0;

    #[test]
    fn undefined_fields_have_defaults_and_wrong_ones_are_refused() {
        assert_eq!(config().blocking(), Ok(true));
        assert_eq!(Config { blocking: 0, ..config() }.blocking(), Ok(false));
        for wrong in [
            Config { magic: 0, ..config() },
            Config { size: 16, ..config() },
            Config { blocking: 2, ..config() },
            Config { min_ctas: 0, ..config() },
            Config { min_ctas: 4, max_ctas: 2, ..config() },
        ] {
            assert!(wrong.blocking().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_longer_structure_is_read_up_to_the_known_fields() {
        let longer = (Config { size: 200, blocking: 0, ..config() }, [7_u8; 200]);
        // SAFETY: the structure and the bytes behind it.
        let read = unsafe { Config::read(&raw const longer.0) };
        assert_eq!((read.size, read.blocking()), (200, Ok(false)));
        assert_eq!(width(9), Some(2));
        assert_eq!((width(10), width(-1)), (None, None));
    }
}
