//! Variables of this shell that change the shim's effect on programs started from it.

use std::path::Path;

use wm_driver::share::may_fetch_descriptors;

use super::finding::Finding;

/// Variables by which PyTorch's allocator is chosen; one that is set is the user's word, and the
/// library leaves it alone.
const PYTORCH: [&str; 2] = ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"];

/// Other interposers of the driver: the start of the file's name, and the product.
const RIVALS: [(&str, &str); 5] = [
    ("libvgpu", "HAMi"),
    ("libnvshare", "nvshare"),
    ("libcuda-control", "vCUDA"),
    ("torch_memory_saver", "torch_memory_saver"),
    ("libcuinterpose", "cuinterpose"),
];

/// Looks at the variables.
pub(super) fn examine(findings: &mut Vec<Finding>) {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    findings.extend(PYTORCH.iter().filter_map(|name| allocator(name, &variable(name)?)));
    findings.extend(sharing(may_fetch_descriptors()));
    findings.extend(variable("LD_PRELOAD").iter().flat_map(|value| rivals(value)));
    findings.extend(variable("WMSHIM_DISABLE").as_deref().and_then(disabled));
}

fn allocator(name: &str, value: &str) -> Option<Finding> {
    let packs = value.contains("backend:cudaMallocAsync") || value.contains("expandable_segments:True");
    (!packs).then(|| {
        Finding::note(
            format!("{name}={value} is set: PyTorch keeps that allocator, which may leave much memory reserved and unused"),
            format!("`unset {name}`, or add expandable_segments:True to it"),
        )
    })
}

/// Without it PyTorch keeps its native allocator: with expandable segments its tensors could not be
/// shared.
fn sharing(may_fetch_descriptors: bool) -> Option<Finding> {
    (!may_fetch_descriptors).then(|| {
        Finding::note(
            "processes may not take descriptors out of each other: PyTorch keeps its native allocator, which leaves more memory unused",
            "start the container with --cap-add=SYS_PTRACE; or, if the program shares no tensors between processes, \
             set WMSHIM_TORCH_ALLOCATOR=expandable",
        )
    })
}

fn rivals(preload: &str) -> Vec<Finding> {
    let files = preload.split([':', ' ']).filter_map(|path| Path::new(path).file_name()?.to_str());
    let known =
        |file: &str| RIVALS.iter().find(|(start, _)| file.starts_with(start)).map(|(_, owner)| *owner);
    let found = files.filter_map(|file| Some((file, known(file)?)));
    found
        .map(|(file, owner)| {
            Finding::note(
                format!("LD_PRELOAD has {file} of {owner}, which stands in front of the driver too"),
                "use one of them at a time: two that move memory do not know of each other",
            )
        })
        .collect()
}

fn disabled(value: &str) -> Option<Finding> {
    let on = !matches!(value.to_ascii_lowercase().as_str(), "0" | "off" | "false" | "no");
    on.then(|| {
        Finding::note(
            "WMSHIM_DISABLE is set: the shim forwards everything and does nothing",
            "`unset WMSHIM_DISABLE`",
        )
    })
}

#[cfg(test)]
mod tests {
    //! Hazard: a warning about a setting that does no harm, or none about one that does.
    use super::*;

    #[test]
    fn only_another_allocator_is_worth_a_word() {
        assert!(allocator("X", "max_split_size_mb:64").is_some());
        assert!(allocator("X", "backend:cudaMallocAsync").is_none());
        assert!(allocator("X", "garbage_collection_threshold:0.8,expandable_segments:True").is_none());
    }

    #[test]
    fn a_container_without_the_capability_is_worth_a_word() {
        assert!(sharing(false).is_some_and(|finding| finding.remedy.is_some()) && sharing(true).is_none());
    }

    #[test]
    fn rivals_are_known_by_file_name() {
        assert_eq!(rivals("/usr/lib/libjemalloc.so.2:/opt/hami/libvgpu.so /x/libnvshare.so").len(), 2);
        assert!(rivals("/opt/libvgpu/liba.so").is_empty());
    }

    #[test]
    fn switches_read_as_the_shim_reads_them() {
        assert!(disabled("1").is_some() && disabled("on").is_some());
        assert!(disabled("0").is_none() && disabled("Off").is_none());
    }
}
