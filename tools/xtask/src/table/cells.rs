//! The meaning of the table's cells. A cell that is missing or means nothing is an error that names
//! its row and column.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use anyhow::{Context, Result, bail, ensure};
use regex::Regex;

use super::{AS_TWIN, COLUMNS, DriverRow, DriverTable, twin_of};

/// One exported function of the driver library.
#[derive(Debug)]
pub(crate) struct DriverFunction {
    pub(crate) name: String,
    pub(crate) is_twin: bool,
    /// Name, type; `None`: undocumented.
    pub(crate) parameters: Option<Vec<(String, String)>>,
    /// The name to look up, and the first CUDA version that has this function.
    pub(crate) lookup: Option<(String, u32)>,
    /// Its class at the gate, as `Passage` of the library writes it; `None`: it does not pass.
    pub(crate) passage: Option<String>,
    /// The call that notes what the function does to a graph.
    pub(crate) graph: Option<String>,
    /// The call that notes a context that the function makes.
    pub(crate) context: Option<String>,
    /// The call that says which memory stays where it is.
    pub(crate) keeps: Option<String>,
    pub(crate) stream: StreamCell,
    pub(crate) is_frequent: bool,
    /// The reports to sharing before the call, and after it succeeded.
    pub(crate) writes: Option<WritesCell>,
    /// The function that checks its ranges.
    pub(crate) bounds: Option<String>,
    pub(crate) cases: CasesCell,
}

/// The stream that a call works in.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum StreamCell {
    None,
    Default,
    /// The parameter that names it.
    Named(String),
}

/// The effect of a call on device memory, as calls of Rust functions.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum WritesCell {
    Nothing,
    /// Its arguments are read for all subscribers of launches, sharing among them.
    Launch,
    Calls {
        before: String,
        after: Option<String>,
    },
}

/// The cases that compare a function under the shim.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum CasesCell {
    Cases(Vec<String>),
    /// Why none does.
    WhyNot(String),
}

/// The beginning of the cell of a call that makes, changes or ends a graph.
const GRAPH_CALL: &str = "graph:";

/// The beginning of the cell of a call that makes a context.
const CONTEXT_CALL: &str = "context:";

impl DriverFunction {
    /// `name: type, name: type`; `None`: undocumented.
    pub(crate) fn parameter_list(&self) -> Option<String> {
        let parameters = self.parameters.as_ref()?.iter();
        Some(parameters.map(|(name, kind)| format!("{name}: {kind}")).collect::<Vec<_>>().join(", "))
    }
}

/// Reads every cell of the table.
pub(crate) fn functions(table: &DriverTable) -> Result<Vec<DriverFunction>> {
    let rows: BTreeMap<&str, &DriverRow> = table.rows.iter().map(|row| (row.name(), row)).collect();
    let reasons = [table.reasons("gate"), table.reasons("cases")];
    table.rows.iter().map(|row| CellReader { row, rows: &rows, reasons: &reasons }.function()).collect()
}

/// Reads the cells of one row.
struct CellReader<'t> {
    row: &'t DriverRow,
    rows: &'t BTreeMap<&'t str, &'t DriverRow>,
    /// Of the columns `gate` and `cases`.
    reasons: &'t [BTreeMap<&'t str, &'t str>; 2],
}

impl CellReader<'_> {
    fn function(&self) -> Result<DriverFunction> {
        COLUMNS.iter().try_for_each(|column| self.cell(column).map(drop))?;
        let function = DriverFunction {
            name: self.row.name().to_owned(),
            is_twin: twin_of(self.row.name()).is_some(),
            parameters: self.read("parameters", parameters)?,
            lookup: self.read("lookup", lookup)?,
            passage: self.read("gate", |cell| self.passage(cell))?,
            graph: self.cell("gate")?.strip_prefix(GRAPH_CALL).map(str::to_owned),
            context: self.cell("gate")?.strip_prefix(CONTEXT_CALL).map(str::to_owned),
            keeps: kept(self.cell("gate")?).and_then(|(_, range)| range).map(str::to_owned),
            stream: self.read("stream", |cell| Ok(stream(cell)))?,
            is_frequent: self.read("pace", pace)?,
            writes: self.read("writes", writes)?,
            bounds: self.read("bounds", bounds)?,
            cases: self.read("cases", |cell| self.cases(cell))?,
        };
        self.read("stream", |_| stream_fits(&function))?;
        let calls = [&function.graph, &function.context, &function.keeps];
        self.read("gate", |_| calls.into_iter().flatten().try_for_each(|call| call_fits(call, &function)))?;
        self.read("writes", |_| writes_fit(&function))?;
        self.read("bounds", |_| bounds_fit(&function))?;
        Ok(function)
    }

    /// A cell, with `=` replaced by the cell that it stands for.
    fn cell(&self, column: &str) -> Result<&str> {
        let place = || format!("row {}, column {column}", self.row.name());
        let mut cell = self.row.cell(column);
        if cell == AS_TWIN {
            let base = twin_of(self.row.name()).and_then(|base| self.rows.get(base));
            let base =
                base.with_context(|| format!("{}: `=`, and it is nothing's per-thread twin", place()))?;
            cell = base.cell(column);
        }
        ensure!(
            !cell.is_empty(),
            "{}: it is empty; the head of the table says what may stand there",
            place()
        );
        Ok(cell)
    }

    /// A cell's meaning, where `meaning` fails without naming the place.
    fn read<T>(&self, column: &str, meaning: impl FnOnce(&str) -> Result<T>) -> Result<T> {
        let cell = self.cell(column)?;
        let place = || format!("row {}, column {column}, `{cell}`", self.row.name());
        meaning(cell).map_err(|error| error.context(place()))
    }

    fn passage(&self, cell: &str) -> Result<Option<String>> {
        if let Some(reason) = reason(cell) {
            ensure!(self.reasons[0].contains_key(reason), "the head of the table gives no such reason");
            return Ok(None);
        }
        if let Some((reason, _)) = kept(cell) {
            return Ok(Some(format!("Unshare({})", pin_reason(reason)?)));
        }
        if let Some(reason) = cell.strip_prefix("pins:") {
            return Ok(Some(format!("Pin({})", pin_reason(reason)?)));
        }
        let passage = match cell {
            "submits" | "looks" | "ends" => "Pass",
            cell if cell.starts_with(CONTEXT_CALL) => "Pass",
            "holds" => "Hold",
            "graph" => "Graph",
            cell if cell.starts_with(GRAPH_CALL) => "Graph",
            _ => bail!("unknown"),
        };
        Ok(Some(passage.to_owned()))
    }

    fn cases(&self, cell: &str) -> Result<CasesCell> {
        if let Some(reason) = reason(cell) {
            let reason = self.reasons[1].get(reason).context("the head of the table gives no such reason")?;
            return Ok(CasesCell::WhyNot((*reason).to_owned()));
        }
        let cases: Vec<String> = cell.split(' ').map(str::to_owned).collect();
        ensure!(cases.iter().all(|case| case.contains('.')), "neither cases nor a reason");
        Ok(CasesCell::Cases(cases))
    }
}

/// `keeps:REASON` or `keeps:REASON:CALL`: the reason, and the call.
fn kept(cell: &str) -> Option<(&str, Option<&str>)> {
    let cell = cell.strip_prefix("keeps:")?;
    Some(cell.split_once(':').map_or((cell, None), |(reason, call)| (reason, Some(call))))
}

/// As `PinReason` of the library writes it.
fn pin_reason(reason: &str) -> Result<&'static str> {
    Ok(match reason {
        "shared" => "Shared",
        "sync-memops" => "SyncMemops",
        "peer" => "Peer",
        "green-context" => "GreenContext",
        _ => bail!("unknown"),
    })
}

/// `none(REASON)`.
fn reason(cell: &str) -> Option<&str> {
    cell.strip_prefix("none(")?.strip_suffix(')')
}

fn parameters(cell: &str) -> Result<Option<Vec<(String, String)>>> {
    let parameter = |text: &str| {
        let (name, kind) = text.split_once(": ").with_context(|| format!("`{text}` is no parameter"))?;
        Ok((name.to_owned(), kind.to_owned()))
    };
    match cell {
        "?" => Ok(None),
        "()" => Ok(Some(Vec::new())),
        list => list.split(", ").map(parameter).collect::<Result<_>>().map(Some),
    }
}

fn lookup(cell: &str) -> Result<Option<(String, u32)>> {
    if cell == "-" {
        return Ok(None);
    }
    let (name, version) = cell.split_once('@').context("neither `-` nor NAME@VERSION")?;
    Ok(Some((name.to_owned(), version.parse().context("the version is no number")?)))
}

fn stream(cell: &str) -> StreamCell {
    match cell {
        "-" => StreamCell::None,
        "default" => StreamCell::Default,
        name => StreamCell::Named(name.to_owned()),
    }
}

fn pace(cell: &str) -> Result<bool> {
    ensure!(matches!(cell, "frequent" | "usual"), "neither `frequent` nor `usual`");
    Ok(cell == "frequent")
}

fn writes(cell: &str) -> Result<Option<WritesCell>> {
    let calls = |before: &str, after: Option<&str>| {
        Some(WritesCell::Calls { before: before.to_owned(), after: after.map(str::to_owned) })
    };
    Ok(match cell {
        "-" => None,
        "nothing" => Some(WritesCell::Nothing),
        "launch" => Some(WritesCell::Launch),
        "foreign" => calls("foreign()", None),
        cell => match cell.split_once(" then ") {
            Some((before, after)) => calls(before, Some(after)),
            None => calls(cell, None),
        },
    })
}

fn bounds(cell: &str) -> Result<Option<String>> {
    Ok((cell != "-").then(|| cell.to_owned()))
}

/// A stream that is named is one, and a call that passes the gate names the one that it has.
fn stream_fits(function: &DriverFunction) -> Result<()> {
    let names_stream = |kind: &str| matches!(kind, "CUstream" | "*const CUlaunchConfig");
    let parameters = function.parameters.as_deref().unwrap_or_default();
    let named = parameters.iter().find(|(_, kind)| names_stream(kind)).map(|(name, _)| name.as_str());
    match &function.stream {
        StreamCell::Named(name) => {
            ensure!(named == Some(name.as_str()), "no parameter of that name is a stream")
        }
        _ if function.passage.is_none() => {}
        _ => ensure!(named.is_none(), "the stream is `{}`", named.unwrap_or_default()),
    }
    Ok(())
}

/// A call is told to sharing exactly if it passes the gate; sharing ends with one that pins all
/// memory.
fn writes_fit(function: &DriverFunction) -> Result<()> {
    let Some(writes) = &function.writes else {
        ensure!(function.passage.is_none(), "the call passes the gate, so it says what it writes");
        return Ok(());
    };
    let passage = function.passage.as_deref().context("the call does not pass the gate, so it says `-`")?;
    ensure!(function.parameters.is_some(), "the parameters of the function are unknown");
    let WritesCell::Calls { before, after } = writes else {
        ensure!(matches!(passage, "Pass" | "Hold" | "Graph"), "a call that pins memory is `foreign`");
        return Ok(());
    };
    let is_foreign = before == "foreign()";
    ensure!(
        is_foreign || matches!(passage, "Pass" | "Hold" | "Graph"),
        "a call that pins memory is `foreign`"
    );
    [Some(before), after.as_ref()].into_iter().flatten().try_for_each(|call| call_fits(call, function))
}

fn bounds_fit(function: &DriverFunction) -> Result<()> {
    let Some(bounds) = &function.bounds else { return Ok(()) };
    ensure!(function.parameters.is_some(), "the parameters of the function are unknown");
    call_fits(bounds, function)
}

/// `word(parameter, parameter)`.
fn call_fits(call: &str, function: &DriverFunction) -> Result<()> {
    static CALL: OnceLock<Regex> = OnceLock::new();
    let form = CALL.get_or_init(|| Regex::new(r"^[a-z]\w*\(((?:\w+(?:, \w+)*)?)\)$").expect("an expression"));
    let found =
        form.captures(call).context("unknown: neither a word of the head nor FUNCTION(PARAMETERS)")?;
    let known = function.parameters.as_deref().unwrap_or_default();
    let strange =
        found[1].split(", ").find(|name| !name.is_empty() && !known.iter().any(|(one, _)| one == name));
    ensure!(strange.is_none(), "the function has no parameter `{}`", strange.unwrap_or_default());
    Ok(())
}

#[cfg(test)]
mod tests {
    //! Hazard (wrong result): a function of a new driver is taken for one that submits nothing and
    //! writes nothing, because no cell says what it is.
    use super::*;

    const ROWS: &str = "# gate none(wait): a wait\n# cases none(older): an older form\n\
        cuA\tcuA@2000\tsubmits\ts\tfrequent\tload(to, n)\trange(to, n)\tto: CUdeviceptr, n: usize, s: CUstream\ta.one a.two\n\
        cuA_ptsz\tcuA@7000\t=\t=\t=\t=\t=\t=\t=\n\
        cuB\t-\tnone(wait)\t-\tusual\t-\t-\t?\tnone(older)\n";

    fn read(text: &str) -> Result<Vec<DriverFunction>> {
        functions(&DriverTable::parse(text)?)
    }

    #[test]
    fn cells_mean_what_the_head_says() {
        let [a, twin, b] = &read(ROWS).unwrap()[..] else { panic!("three") };
        assert_eq!(a.passage.as_deref(), Some("Pass"));
        assert_eq!((&a.stream, a.is_frequent), (&StreamCell::Named("s".into()), true));
        assert_eq!(a.writes, Some(WritesCell::Calls { before: "load(to, n)".into(), after: None }));
        assert_eq!(a.cases, CasesCell::Cases(vec!["a.one".into(), "a.two".into()]));
        assert_eq!((&twin.writes, &twin.parameters, &twin.passage), (&a.writes, &a.parameters, &a.passage));
        assert_eq!((twin.is_twin, twin.lookup.as_ref().unwrap().1), (true, 7000));
        assert_eq!((&b.passage, &b.writes, &b.parameters, &b.lookup), (&None, &None, &None, &None));
        assert_eq!(b.cases, CasesCell::WhyNot("an older form".into()));
    }

    /// Each cell is emptied, and each of a word is given another one.
    #[test]
    fn a_cell_that_is_missing_or_unknown_names_its_row_and_column() {
        for (at, column) in COLUMNS.iter().enumerate().skip(1) {
            for cell in ["", "strange"] {
                let replace = |line: &str| {
                    let mut cells: Vec<&str> = line.split('\t').collect();
                    if cells[0] == "cuA" {
                        cells[at] = cell;
                    }
                    cells.join("\t") + "\n"
                };
                let error = read(&ROWS.lines().map(replace).collect::<String>()).unwrap_err();
                assert!(format!("{error:#}").contains(&format!("row cuA, column {column}")), "{error:#}");
            }
        }
    }

    #[test]
    fn cells_fit_each_other() {
        for (from, to, why) in [
            ("submits\ts", "submits\t-", "column stream, `-`: the stream is `s`"),
            ("submits\ts", "submits\tn", "no parameter of that name is a stream"),
            ("load(to, n)", "load(to, size)", "the function has no parameter `size`"),
            ("range(to, n)", "range(to, size)", "column bounds"),
            ("load(to, n)", "-", "the call passes the gate"),
            ("submits", "none(wait)", "does not pass the gate"),
            ("submits", "pins:peer", "is `foreign`"),
            ("submits", "keeps:peer", "is `foreign`"),
            ("submits", "keeps:shared:block(at)", "the function has no parameter `at`"),
            ("submits", "context:made(place)", "the function has no parameter `place`"),
            ("submits", "pins:other", "unknown"),
            ("submits", "graph:made(graph)", "the function has no parameter `graph`"),
            ("submits", "none(other)", "no such reason"),
            ("\tnone(older)", "\tnone(newer)", "row cuB, column cases, `none(newer)`"),
            ("\tnone(older)", "\t=", "row cuB, column cases: `=`"),
        ] {
            let error = read(&ROWS.replacen(from, to, 1)).unwrap_err();
            assert!(format!("{error:#}").contains(why), "{from} as {to}: {error:#}");
        }
    }
}
