//! Functions on files.

use super::exports;

exports! {
    /// HDFS is not built in.
    fn wholememory_load_hdfs_support() -> u32 {
        super::missing::answer_missing("wholememory_load_hdfs_support")
    }
}
