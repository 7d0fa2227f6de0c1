//! Functions of `wholememory_op.h`: rows by their numbers. None is done yet.

use super::exports;

exports! {}
