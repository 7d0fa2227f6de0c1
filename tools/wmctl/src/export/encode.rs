//! Families of series in the text format of Prometheus, version 0.0.4, and as JSON. Pure.

use std::fmt::Write;

use serde_json::{Value, json};

use super::families::MetricFamily;

/// One HELP and one TYPE a family, and its series behind them. A family without a series is left
/// out.
pub(super) fn text(families: &[MetricFamily]) -> String {
    let mut text = String::new();
    for MetricFamily { name, help, kind, series } in
        families.iter().filter(|family| !family.series.is_empty())
    {
        text.push_str(&format!("# HELP {name} {help}\n# TYPE {name} {}\n", kind.name()));
        for (labels, value) in series {
            text.push_str(name);
            let labels: Vec<String> =
                labels.iter().map(|(label, value)| format!("{label}=\"{}\"", escaped(value))).collect();
            if !labels.is_empty() {
                let _always = write!(text, "{{{}}}", labels.join(","));
            }
            let _always = writeln!(text, " {value}");
        }
    }
    text
}

/// A label's value: a backslash, a quote and the end of a line have another one before them.
fn escaped(value: &str) -> String {
    value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}

pub(super) fn json(families: &[MetricFamily]) -> Value {
    let series = |family: &MetricFamily| -> Vec<Value> {
        let series = family.series.iter();
        series
            .map(|(labels, value)| {
                let labels: serde_json::Map<String, Value> =
                    labels.iter().map(|(label, value)| ((*label).to_owned(), value.clone().into())).collect();
                json!({ "labels": labels, "value": value })
            })
            .collect()
    };
    let families: Vec<Value> = families
        .iter()
        .map(|family| {
            json!({ "name": family.name, "type": family.kind.name(), "help": family.help, "series": series(family) })
        })
        .collect();
    json!({ "schema": "wmctl-export/1", "families": families })
}

#[cfg(test)]
mod tests {
    //! Hazard (corrupt input): a program's name ends a label early, and the whole scrape is
    //! refused.
    use super::*;
    use crate::export::families::MetricKind;

    #[test]
    fn labels_are_escaped_and_empty_families_left_out() {
        let family = |name, kind| MetricFamily { name, help: "What it is.", kind, series: Vec::new() };
        let mut one = family("wmshim_live_bytes", MetricKind::Gauge);
        one.series.push((vec![("program", "a\"b\\c\nd".to_owned()), ("pid", "7".to_owned())], 5));
        let mut bare = family("wmshim_moves_total", MetricKind::Counter);
        bare.series.push((Vec::new(), 3));
        assert_eq!(
            text(&[one, family("wmshim_none", MetricKind::Gauge), bare]),
            "# HELP wmshim_live_bytes What it is.\n\
             # TYPE wmshim_live_bytes gauge\n\
             wmshim_live_bytes{program=\"a\\\"b\\\\c\\nd\",pid=\"7\"} 5\n\
             # HELP wmshim_moves_total What it is.\n\
             # TYPE wmshim_moves_total counter\n\
             wmshim_moves_total 3\n"
        );
    }
}
