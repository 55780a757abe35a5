//! Rulesets, calls and answers, written short.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};
use serde_json::{Value, json};
use weir_jdm::{Jdm, JdmConfig};
use weir_model::port::{RuleAnswer, RuleCall, RuleContext, RuleEngine, Rules};
use weir_model::ruleset::{FileEntry, FunctionGrant};
use weir_model::{CallError, DataError, Digest, Fault, Kind, Limits, Problem, Ruleset, TenantConfig};

/// T of the tests, and its text.
pub const T: &str = "2026-01-31T12:00:00.250Z";

/// One thread, for all tests: a pool that could wait for itself would show.
pub static JDM: LazyLock<Arc<Jdm>> = LazyLock::new(|| Jdm::new(JdmConfig { threads: 1 }).expect("a pool"));

/// A ruleset with these files, in which every file of `rules/` without `.cases` is a rule of its name.
pub fn ruleset(files: &[(&str, &str)]) -> Ruleset {
    let content: BTreeMap<String, Arc<[u8]>> =
        files.iter().map(|(path, text)| ((*path).to_owned(), text.as_bytes().into())).collect();
    let listing: BTreeMap<String, FileEntry> = content
        .iter()
        .map(|(path, bytes)| {
            let entry = FileEntry { digest: Digest::of(bytes), size: bytes.len() as u64 };
            (path.clone(), entry)
        })
        .collect();
    let mut manifest = "plugin = \"plugins/none.wasm\"\ntrigger = \"once\"\n[rules]\n".to_owned();
    for path in content.keys().filter(|path| !path.ends_with(".cases.json")) {
        let name = path.trim_start_matches("rules/").trim_end_matches(".json").replace('/', "_");
        manifest.push_str(&format!("\"{name}\" = \"{path}\"\n"));
    }
    let scenario = "acme/network".parse().expect("an id");
    Ruleset {
        digest: Ruleset::digest_of(&scenario, &listing),
        scenario,
        files: listing,
        content,
        manifest: toml::from_str(&manifest).expect("a manifest"),
        tenant: TenantConfig::default(),
        streams: BTreeMap::new(),
        limits: Limits::defaults(),
    }
}

/// A ruleset with one rule, `r`.
pub fn one(rule: &Value) -> Ruleset {
    ruleset(&[("rules/r.json", &rule.to_string())])
}

/// Grants function nodes in module form.
pub fn granted(mut ruleset: Ruleset) -> Ruleset {
    ruleset.tenant.grants.functions = Some(FunctionGrant::Native);
    ruleset
}

pub fn load(ruleset: &Ruleset) -> Arc<dyn Rules> {
    match JDM.load(ruleset) {
        Ok(rules) => rules,
        Err(problems) => panic!("{problems:#?}"),
    }
}

pub fn problems(ruleset: &Ruleset) -> Vec<Problem> {
    JDM.load(ruleset).err().expect("the ruleset is bad")
}

/// The only problem of a ruleset that has one rule.
pub fn problem(rule: &Value) -> Problem {
    let mut all = problems(&one(rule));
    assert_eq!(all.len(), 1, "{all:#?}");
    all.remove(0)
}

/// Nodes between an input and an output node, in a row.
pub fn graph(nodes: &[Value]) -> Value {
    let mut all = vec![json!({"id": "in", "name": "Request", "type": "inputNode"})];
    all.extend(nodes.iter().cloned());
    all.push(json!({"id": "out", "name": "Response", "type": "outputNode"}));
    let edges: Vec<Value> = all
        .windows(2)
        .map(|pair| json!({"id": format!("{}-{}", pair[0]["id"], pair[1]["id"]), "sourceId": pair[0]["id"], "targetId": pair[1]["id"]}))
        .collect();
    json!({"nodes": all, "edges": edges})
}

/// A function node in the older form.
pub fn function(source: &str) -> Value {
    json!({"id": "f", "name": "Fn", "type": "functionNode", "content": source})
}

pub fn expressions(list: &[(&str, &str)]) -> Value {
    let list: Vec<Value> = list.iter().map(|(key, value)| json!({"id": key, "key": key, "value": value})).collect();
    json!({"id": "e", "name": "Expr", "type": "expressionNode", "content": {"expressions": list}})
}

/// A decision table with hit policy first: input fields, output fields, rows of cells.
pub fn table(inputs: &[&str], outputs: &[&str], rows: &[&[&str]]) -> Value {
    let column = |prefix: &str, field: &&str| json!({"id": format!("{prefix}-{field}"), "name": field, "field": field});
    let ids: Vec<String> =
        inputs.iter().map(|f| format!("i-{f}")).chain(outputs.iter().map(|f| format!("o-{f}"))).collect();
    let rules: Vec<Value> = rows
        .iter()
        .map(|cells| {
            ids.iter().zip(*cells).map(|(id, cell)| (id.clone(), json!(cell))).collect::<serde_json::Map<_, _>>().into()
        })
        .collect();
    json!({"id": "t", "name": "Table", "type": "decisionTableNode", "content": {
        "hitPolicy": "first", "rules": rules,
        "inputs": inputs.iter().map(|f| column("i", f)).collect::<Vec<_>>(),
        "outputs": outputs.iter().map(|f| column("o", f)).collect::<Vec<_>>()}})
}

/// A node that asks another rule.
pub fn ask(key: &str) -> Value {
    json!({"id": format!("ask-{key}"), "name": format!("Ask {key}"), "type": "decisionNode", "content": {"key": key}})
}

pub fn context() -> RuleContext {
    RuleContext { time: T.parse().expect("a time"), seed: [7; 32], zone: weir_model::Zone::UTC }
}

pub fn want(columns: &[(&str, Kind)]) -> RuleCall {
    RuleCall { want: columns.iter().map(|(path, kind)| ((*path).to_owned(), *kind)).collect(), ..RuleCall::default() }
}

/// One evaluation of rule `r` over a row each.
pub fn each(rows: RecordBatch, columns: &[(&str, Kind)]) -> RuleCall {
    RuleCall { each: Some(rows), ..want(columns) }
}

pub fn ask_rule(rules: &Arc<dyn Rules>, call: &RuleCall) -> RuleAnswer {
    rules.evaluate("r", call, context()).expect("an answer")
}

/// The whole result of rule `r` for a call without rows.
pub fn whole(rules: &Arc<dyn Rules>, call: &RuleCall) -> Value {
    let call = RuleCall { want: vec![(String::new(), Kind::Json)], ..call.clone() };
    serde_json::from_str(&texts(&ask_rule(rules, &call), 0)[0]).expect("JSON")
}

/// The whole result of one rule on an empty input.
pub fn result(rule: &Value) -> Value {
    whole(&load(&one(rule)), &RuleCall::default())
}

/// Why a call without rows failed.
pub fn failed(rules: &Arc<dyn Rules>, call: &RuleCall) -> String {
    match rules.evaluate("r", call, context()) {
        Err(CallError::Data(DataError::Failed(reason))) => reason,
        other => panic!("{other:?}"),
    }
}

pub fn fault(rules: &Arc<dyn Rules>, call: &RuleCall) -> Fault {
    match rules.evaluate("r", call, context()) {
        Err(CallError::Fault(fault)) => fault,
        other => panic!("{other:?}"),
    }
}

/// A column of texts; null is `-`.
pub fn texts(answer: &RuleAnswer, column: usize) -> Vec<String> {
    let texts = answer.rows.column(column).as_string::<i32>();
    (0..texts.len()).map(|i| if texts.is_null(i) { "-".to_owned() } else { texts.value(i).to_owned() }).collect()
}
