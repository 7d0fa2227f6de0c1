//! The crates that are linked into the shipped binaries, as a CycloneDX document, from `cargo
//! metadata` and `Cargo.lock`.
//!
//! Crates that only tests or build scripts need are not in it. The standard library is in each
//! binary, so it is in the list, by the compiler's version.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::step;

const TARGET: &str = concat!("x86_64", "-unknown-linux-gnu");

/// The document for these packages of the workspace.
pub(super) fn bill(version: &str, packages: &[&str]) -> Result<Value> {
    let words = ["metadata", "--format-version", "1", "--locked", "--filter-platform", TARGET];
    let metadata: Value = serde_json::from_str(&step::output(step::cargo(&words))?)?;
    let lock = fs::read_to_string(crate::root().join("Cargo.lock")).context("Cargo.lock")?;
    let rustc = step::output(step::command("rustc", &["--version"]))?;
    let linked = linked(&metadata, packages)?;
    let mut components: Vec<_> = list(&metadata["packages"])
        .iter()
        .filter(|package| linked.contains_key(text(&package["id"])))
        .map(|package| component(package, &checksums(&lock)))
        .collect();
    components.push(json!({
        "type": "library", "bom-ref": "rust-std", "name": "rust-std",
        "version": rustc.split(' ').nth(1).unwrap_or_default(),
        "licenses": [{ "expression": "MIT OR Apache-2.0" }],
    }));
    let edges = linked.iter().map(|(id, on)| json!({ "ref": id, "dependsOn": on }));
    let own = linked.keys().copied().filter(|id| is_own(&metadata, id));
    let parts: Vec<_> = own.chain(["rust-std"]).collect();
    let whole = json!({ "ref": "wmshim", "dependsOn": parts });
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": {
            "type": "application", "bom-ref": "wmshim", "name": "wmshim", "version": version,
            "licenses": [{ "license": { "id": "Apache-2.0" } }],
        } },
        "components": components,
        "dependencies": std::iter::once(whole).chain(edges).collect::<Vec<_>>(),
    }))
}

/// The packages that these are linked of, each with those that it needs itself.
fn linked<'a>(metadata: &'a Value, packages: &[&str]) -> Result<BTreeMap<&'a str, BTreeSet<&'a str>>> {
    let nodes = list(&metadata["resolve"]["nodes"]);
    let needs: BTreeMap<_, _> = nodes.iter().map(|node| (text(&node["id"]), normal(node))).collect();
    let named = list(&metadata["packages"]).iter().filter(|package| is_own(metadata, text(&package["id"])));
    let named = named.filter(|package| packages.contains(&text(&package["name"])));
    let mut open: Vec<&str> = named.map(|package| text(&package["id"])).collect();
    let mut found = BTreeMap::new();
    while let Some(id) = open.pop() {
        let on = needs.get(id).with_context(|| format!("cargo metadata has no node {id}"))?;
        if found.insert(id, on.clone()).is_none() {
            open.extend(on.iter().copied());
        }
    }
    Ok(found)
}

/// The packages that a node needs at run time.
fn normal(node: &Value) -> BTreeSet<&str> {
    let is_normal =
        |dependency: &&Value| list(&dependency["dep_kinds"]).iter().any(|it| it["kind"].is_null());
    list(&node["deps"]).iter().filter(is_normal).map(|dependency| text(&dependency["pkg"])).collect()
}

fn is_own(metadata: &Value, id: &str) -> bool {
    list(&metadata["workspace_members"]).iter().any(|member| member == id)
}

fn component(package: &Value, checksums: &BTreeMap<(&str, &str), &str>) -> Value {
    let (name, version) = (text(&package["name"]), text(&package["version"]));
    let mut component =
        json!({ "type": "library", "bom-ref": package["id"], "name": name, "version": version });
    if package["license"].is_string() {
        component["licenses"] = json!([{ "expression": text(&package["license"]).replace('/', " OR ") }]);
    }
    if let Some(checksum) = checksums.get(&(name, version)) {
        component["purl"] = json!(format!("pkg:cargo/{name}@{version}"));
        component["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
    }
    component
}

/// The checksums of `Cargo.lock`, by name and version.
fn checksums(lock: &str) -> BTreeMap<(&str, &str), &str> {
    let packages = lock.split("[[package]]").skip(1);
    let field = |package: &'static str| move |text| value(text, package);
    packages
        .filter_map(|text| Some(((field("name")(text)?, field("version")(text)?), field("checksum")(text)?)))
        .collect()
}

fn value<'a>(text: &'a str, field: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(" = \"")?.strip_suffix('"'))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}
