//! Variables with our prefix that are no settings, and the words about them.

use super::table::{KNOWN, OF_OTHERS};

/// Settings of earlier releases, each with its replacement.
const REMOVED: &[(&str, &str)] = &[
    ("WMSHIM_FREE_WAITS", "cuMemFree waits, as the driver's does; use cuMemFreeAsync to free without a wait"),
    ("WMSHIM_TORCH_SHORTAGE", "PyTorch is told of a full device first; unset it"),
    ("WMSHIM_DEDUP_PROOF", "kernels are proven to read by their code, not by launches; unset it"),
    ("WMSHIM_HOST_AHEAD", "host memory is pinned when it is needed; unset it"),
];

/// Notes from a process to its children, not settings. The last one is of `wmctl run --stats`.
const CHOICES: [&str; 3] = ["WMSHIM_TORCH_CHOICE", "WMSHIM_JAX_CHOICE", "WMSHIM_STATS_RUN"];

pub(super) fn strangers(names: impl Iterator<Item = String>) -> Vec<String> {
    let ours = names.filter(|name| name.starts_with("WMSHIM_"));
    let strange = ours.filter(|name| {
        !is_known(name) && !OF_OTHERS.contains(&name.as_str()) && !CHOICES.contains(&name.as_str())
    });
    strange.map(|name| complaint(&name)).collect()
}

pub(super) fn is_known(name: &str) -> bool {
    KNOWN.iter().any(|row| row.variable == name)
}

pub(super) fn complaint(name: &str) -> String {
    if let Some((_, instead)) = REMOVED.iter().find(|(removed, _)| *removed == name) {
        return format!("{name} was removed: {instead}");
    }
    if let Some(meant) = nearest(name) {
        return format!("{name} is not a setting; did you mean {meant}?");
    }
    let known: Vec<_> = KNOWN.iter().map(|row| row.variable).collect();
    format!("{name} is not a setting; valid: {}", known.join(" "))
}

/// The setting that a name with a typing error or two was meant to be. A third of a short word that
/// differs makes another word of it.
fn nearest(name: &str) -> Option<&'static str> {
    const ERRORS: usize = 2;
    let distance = |variable: &str| strsim::osa_distance(name, variable);
    let nearest = KNOWN.iter().map(|row| row.variable).min_by_key(|variable| distance(variable))?;
    let most = ERRORS.min(nearest.len().saturating_sub("WMSHIM_".len()) / 3);
    (distance(nearest) <= most).then_some(nearest)
}

#[cfg(test)]
mod tests {
    //! Hazard (error handling): a typing error in a variable's name is ignored in silence.
    use super::*;

    #[test]
    fn unknown_variables_are_named() {
        let names = ["WMSHIM_STICH", "WMSHIM_LOG", "PATH", "WMSHIM_LIB", "WMSHIM_DEVICE_LIMTI"];
        let lines = strangers(names.iter().map(|name| (*name).to_owned()));
        assert_eq!(
            lines,
            [
                "WMSHIM_STICH is not a setting; did you mean WMSHIM_STITCH?",
                "WMSHIM_DEVICE_LIMTI is not a setting; did you mean WMSHIM_DEVICE_LIMIT?",
            ]
        );
        let far = strangers(["WMSHIM_COLOUR".to_owned()].into_iter());
        assert!(far[0].contains("valid: ") && far[0].contains(" WMSHIM_STITCH"), "{far:?}");
    }

    /// Hazard (error handling): a setting of an earlier release has no effect, and the user is not
    /// told.
    #[test]
    fn a_removed_setting_is_named_with_what_to_do() {
        for (name, instead) in REMOVED {
            assert_eq!(
                strangers([(*name).to_owned()].into_iter()),
                [format!("{name} was removed: {instead}")]
            );
            assert!(!is_known(name) && !OF_OTHERS.contains(name), "{name} is a setting again");
        }
    }
}
