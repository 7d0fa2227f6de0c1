//! Hazard (corrupt input): a file that is damaged, old, forged or written by two at once makes up a
//! writer, loses one, or brings the library down.

use std::os::unix::fs::MetadataExt;
use std::process::Command;

use proptest::prelude::*;

use super::*;
use crate::readers::{FunctionKey, ParameterKey};

fn parameter(number: u32) -> ParameterKey {
    ParameterKey { function: FunctionKey::of(u128::from(number / 2), "kernel"), offset: number % 2 * 8 }
}

fn of(list: &[(u32, u32)]) -> KnownWriters {
    let mut writers = KnownWriters::default();
    list.iter().for_each(|(number, day)| writers.insert(parameter(*number), *day));
    writers
}

fn writers() -> impl Strategy<Value = KnownWriters> {
    prop::collection::vec((0..12_u32, 0..9_u32), 0..20).prop_map(|list| of(&list))
}

fn merged(one: &KnownWriters, other: &KnownWriters) -> KnownWriters {
    let mut all = one.clone();
    all.merge(other);
    all
}

/// Each writer of `found` was written.
fn are_of(found: &KnownWriters, written: &KnownWriters) -> bool {
    let written: Vec<_> = written.iter().collect();
    found.iter().all(|writer| written.contains(&writer))
}

proptest! {
    #[test]
    fn neither_order_nor_repetition_matters(a in writers(), b in writers(), c in writers()) {
        prop_assert_eq!(merged(&a, &b), merged(&b, &a));
        prop_assert_eq!(merged(&merged(&a, &b), &c), merged(&a, &merged(&b, &c)));
        prop_assert_eq!(merged(&a, &a), a.clone());
        let all: Vec<_> = merged(&a, &b).iter().map(|(parameter, _)| parameter).collect();
        prop_assert!(a.iter().chain(b.iter()).all(|(writer, _)| all.contains(&writer)));
    }

    #[test]
    fn what_is_written_is_read(a in writers()) {
        prop_assert_eq!(record::decode(&record::encode(&a)), a);
    }

    #[test]
    fn no_bytes_make_up_a_writer(bytes in prop::collection::vec(any::<u8>(), 0..400), headed in any::<bool>()) {
        let bytes = if headed { [&record::HEAD[..], &bytes].concat() } else { bytes };
        prop_assert!(record::decode(&bytes).is_empty());
    }

    #[test]
    fn damage_takes_writers_and_makes_none(
        a in writers(), flips in prop::collection::vec((any::<prop::sample::Index>(), 1..=255_u8), 0..6),
        cut in any::<prop::sample::Index>(), moved in any::<Option<prop::sample::Index>>(),
    ) {
        let mut bytes = record::encode(&a);
        for (at, flip) in flips { let at = at.index(bytes.len()); bytes[at] ^= flip }
        bytes.truncate(cut.index(bytes.len() + 1));
        if let Some(at) = moved { bytes.insert(at.index(bytes.len() + 1), 0) }
        prop_assert!(are_of(&record::decode(&bytes), &a));
    }

    #[test]
    fn what_is_dropped_is_old(a in writers(), most in 0..14_usize) {
        let mut rest = a.clone();
        rest.trim(most);
        prop_assert_eq!(rest.len(), a.len().min(most));
        prop_assert!(are_of(&rest, &a));
        let kept = |parameter| rest.iter().any(|(known, _)| known == parameter);
        let dropped = a.iter().filter(|(parameter, _)| !kept(*parameter)).map(|(_, day)| day).max();
        let least = rest.iter().map(|(_, day)| day).min();
        prop_assert!(dropped.is_none() || least.is_none() || dropped <= least);
    }
}

/// A folder of the test's, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("wm-dedup-cache-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        Self(folder)
    }

    fn cache(&self) -> WriterCache {
        WriterCache::new(&self.0.join("below"))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn what_is_added_is_there_for_the_next() {
    let folder = Folder::new("added");
    let cache = folder.cache();
    assert!(cache.load().expect("no file is no error").is_empty());
    let first = KnownWriters::found(&[parameter(1), parameter(2)], 100);
    assert_eq!(cache.add(&first).expect("a new file"), first);
    cache.add(&of(&[(1, 101), (2, 99), (3, 101)])).expect("a second time");
    assert_eq!(cache.load().expect("the file"), of(&[(1, 101), (2, 100), (3, 101)]));
    assert_eq!(std::fs::metadata(cache.path("")).expect("a file").mode() & 0o777, 0o600);
}

#[test]
fn garbage_is_replaced_and_what_is_no_file_is_left_alone() {
    let folder = Folder::new("garbage");
    let cache = folder.cache();
    let news = of(&[(1, 1)]);
    std::fs::create_dir_all(&cache.folder).expect("a folder");
    std::fs::write(cache.path(""), vec![7; 100_000]).expect("a file");
    std::fs::write(cache.path(".new"), b"half of a fi").expect("what a killed process left");
    assert!(cache.load().expect("garbage is no error").is_empty());
    assert_eq!(cache.add(&news).expect("it is replaced"), news);
    assert_eq!(cache.load().expect("the file"), news);

    std::fs::remove_file(cache.path("")).expect("removed");
    std::os::unix::fs::symlink("/dev/zero", cache.path("")).expect("a link");
    assert!(cache.load().is_err() && cache.add(&news).is_err());
    std::fs::remove_file(cache.path("")).expect("removed");
    std::fs::create_dir(cache.path("")).expect("a folder in its place");
    assert!(matches!(cache.load(), Err(CacheError::Foreign)));
}

/// Hazard: verdicts of another user that may write in the folder.
#[test]
fn a_folder_that_others_may_write_in_is_not_believed() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new("open");
    let cache = folder.cache();
    let news = of(&[(1, 1)]);
    cache.add(&news).expect("a new file");
    std::fs::set_permissions(&cache.folder, std::fs::Permissions::from_mode(0o777)).expect("open to all");
    assert!(cache.load().is_err() && cache.add(&news).is_err());
}

#[test]
fn nobody_waits_for_a_process_that_holds_the_lock() {
    let folder = Folder::new("lock");
    let cache = folder.cache();
    let news = of(&[(1, 1)]);
    cache.add(&news).expect("a new file");
    let lock = CacheLock::acquire(&cache.path(".lock")).expect("free");
    assert!(matches!(cache.add(&news), Err(CacheError::Busy)));
    assert_eq!(cache.load().expect("reading takes no lock"), news);
    drop(lock);
    cache.add(&news).expect("free again");
}

const FOLDER: &str = "WM_DEDUP_TEST_FOLDER";
const FIRST: &str = "WM_DEDUP_TEST_FIRST";
const EACH: u32 = 60;

/// Adds its writers one by one; the other process of `two_processes_lose_no_writer`.
#[test]
#[ignore = "a part of another test"]
fn a_process_that_adds() {
    let (Some(folder), Ok(first)) = (std::env::var_os(FOLDER), std::env::var(FIRST)) else { return };
    let (cache, first) = (WriterCache::new(Path::new(&folder)), first.parse::<u32>().expect("a number"));
    for number in first..first + EACH {
        let news = of(&[(number, 1)]);
        while let Err(error) = cache.add(&news) {
            assert!(matches!(error, CacheError::Busy), "{error}");
            std::thread::yield_now();
        }
    }
}

#[test]
fn two_processes_lose_no_writer() {
    let folder = Folder::new("two");
    let start = |first: u32| {
        let mut process = Command::new(std::env::current_exe().expect("this test"));
        process.args(["--exact", "cache::tests::a_process_that_adds", "--ignored"]);
        process.env(FOLDER, folder.cache().folder).env(FIRST, first.to_string());
        process.spawn().expect("a process")
    };
    let processes = [start(0), start(500)];
    for mut process in processes {
        assert!(process.wait().expect("an end").success());
    }
    let kept = folder.cache().load().expect("the file");
    let expected: Vec<_> = (0..EACH).chain(500..500 + EACH).map(parameter).collect();
    let writers: Vec<_> = kept.iter().map(|(parameter, _)| parameter).collect();
    assert!(
        expected.iter().all(|writer| writers.contains(writer)),
        "{} of {}",
        writers.len(),
        expected.len()
    );
}
