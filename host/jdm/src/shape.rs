//! Checks of a rule file as JSON, before the engine reads it: what the engine would refuse in words that do not help, or
//! accept and silently not do.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};
use weir_model::Problem;

use crate::schema;
use crate::value::shorten;

/// Nodes and edges of one graph. The engine walks it by recursion, anew in each evaluation.
const MAX_NODES: usize = 1_000;
const MAX_EDGES: usize = 10_000;

/// Reads a JSON file. One that ends too early may still be in writing.
pub(crate) fn read<T: serde::de::DeserializeOwned>(file: &str, bytes: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(bytes).map_err(|e| {
        let problem = Problem::new(file, format_args!("not JSON as expected: {e}"));
        match e.is_eof() {
            true => problem.fix("the file ends too early: write it whole").partial(),
            false => problem.fix("correct the file, or save it again from the editor"),
        }
    })
}

/// All problems of the graph in a file.
pub(crate) fn check(file: &str, graph: &Value) -> Vec<Problem> {
    let mut check = Check { file, problems: Vec::new() };
    check.graph(graph);
    check.problems
}

/// How a node is called in problems: by its name, or its id when it has none.
pub(crate) fn label<'a>(name: &'a str, id: &'a str) -> &'a str {
    if name.trim().is_empty() { id } else { name }
}

struct Check<'a> {
    file: &'a str,
    problems: Vec<Problem>,
}

impl Check<'_> {
    fn say(&mut self, node: &str, message: impl std::fmt::Display, fix: &str) {
        self.problems.push(Problem::new(self.file, message).field(node).fix(fix));
    }

    fn graph(&mut self, graph: &Value) {
        const EXPORT: &str = "export the decision from the editor: a JSON object with nodes and edges";
        if graph.get("blocks").is_some() {
            return self.say("blocks", "a policy document is not supported", EXPORT);
        }
        let (Some(nodes), Some(edges)) =
            (graph.get("nodes").and_then(Value::as_array), graph.get("edges").and_then(Value::as_array))
        else {
            return self.say("", "this is no JDM graph: it has no list of nodes and of edges", EXPORT);
        };
        if graph.get("imports").and_then(Value::as_array).is_some_and(|i| !i.is_empty()) {
            self.say("imports", "imports of other documents are not supported", "remove them");
        }
        for (what, is, most) in [("nodes", nodes.len(), MAX_NODES), ("edges", edges.len(), MAX_EDGES)] {
            if is > most {
                let message = format!("there are {is} {what}, and {most} are allowed");
                return self.say(what, message, "split the rule into several");
            }
        }
        let mut names: BTreeMap<&str, &str> = BTreeMap::new();
        let mut inputs = 0;
        for (i, node) in nodes.iter().enumerate() {
            let (Some(id), Some(name), Some(kind)) = (text(node, "id"), text(node, "name"), text(node, "type")) else {
                self.say(
                    &format!("nodes[{i}]"),
                    "a node needs the texts id, name and type",
                    "save the rule again from the editor",
                );
                continue;
            };
            let name = label(name, id);
            if names.insert(id, name).is_some() {
                self.say(name, format_args!("two nodes have the id '{id}'"), "give each node an id of its own");
            }
            inputs += usize::from(kind == "inputNode");
            self.node(name, kind, node.get("content").unwrap_or(&Value::Null));
        }
        match inputs {
            1 => {}
            0 => self.say("", "there is no input node", "add a request (input) node and connect it"),
            n => self.say("", format_args!("there are {n} input nodes"), "leave one request (input) node"),
        }
        self.edges(&names, edges);
    }

    fn edges(&mut self, names: &BTreeMap<&str, &str>, edges: &[Value]) {
        let mut ends = Vec::new();
        for (i, edge) in edges.iter().enumerate() {
            let place = format!("edges[{i}]");
            let (Some(_), Some(source), Some(target)) =
                (text(edge, "id"), text(edge, "sourceId"), text(edge, "targetId"))
            else {
                self.say(
                    &place,
                    "an edge needs the texts id, sourceId and targetId",
                    "save the rule again from the editor",
                );
                continue;
            };
            for end in [source, target] {
                if !names.contains_key(end) {
                    self.say(
                        &place,
                        format_args!("there is no node with the id '{end}'"),
                        "remove the edge, or add the node",
                    );
                }
            }
            ends.push((source, target));
        }
        let cycle = on_cycles(names.keys().copied().collect(), &ends);
        if !cycle.is_empty() {
            let nodes: Vec<&str> = cycle.iter().map(|id| names[id]).collect();
            let first = nodes[0].to_owned();
            self.say(
                &first,
                format_args!("nodes lead back to themselves: {}", nodes.join(", ")),
                "remove an edge of the cycle",
            );
        }
    }

    fn node(&mut self, name: &str, kind: &str, content: &Value) {
        match kind {
            "inputNode" | "outputNode" => {
                if let Err(e) = schema::check(content.get("schema").unwrap_or(&Value::Null)) {
                    self.say(name, e.message, e.fix);
                }
            }
            "functionNode" => {
                let module = content.get("source").is_some_and(Value::is_string);
                if !content.is_string() && !module {
                    self.say(name, "a function node needs its source as a text", "write function handler(input) {...}");
                }
            }
            "decisionTableNode" => self.table(name, content),
            "expressionNode" => self.texts(name, content, "expressions", &["id", "key", "value"]),
            "switchNode" => self.texts(name, content, "statements", &["id", "condition"]),
            "decisionNode" => {
                if text(content, "key").is_none_or(str::is_empty) {
                    self.say(
                        name,
                        "a decision node needs the key of another rule",
                        "choose a file of the rules folder",
                    );
                }
            }
            "customNode" => {
                self.say(name, "custom nodes are not supported", "use a function, table or expression node")
            }
            other => self.say(
                name,
                format_args!("'{}' is no kind of node that is known", shorten(other, 60)),
                "use input, output, decision table, expression, switch, function and decision nodes",
            ),
        }
    }

    fn table(&mut self, name: &str, table: &Value) {
        match table.get("hitPolicy").map(|p| p.as_str()) {
            Some(Some("first" | "collect")) => {}
            None => self.say(name, "the decision table has no hitPolicy", "set it to first or collect"),
            _ => self.say(
                name,
                format_args!("hitPolicy {} is not known", table["hitPolicy"]),
                "set it to first or collect",
            ),
        }
        let mut columns: BTreeMap<&str, &str> = BTreeMap::new();
        for (list, fields) in [("inputs", &["id"][..]), ("outputs", &["id", "field"])] {
            self.texts(name, table, list, fields);
            for column in table.get(list).and_then(Value::as_array).into_iter().flatten() {
                if let Some(id) = text(column, "id") {
                    let title = ["field", "name", "id"].iter().find_map(|k| text(column, k).filter(|t| !t.is_empty()));
                    columns.insert(id, title.unwrap_or(id));
                }
            }
        }
        let Some(rules) = table.get("rules").and_then(Value::as_array) else {
            return self.say(name, "the decision table has no list of rules", "save the rule again from the editor");
        };
        for (i, rule) in rules.iter().enumerate() {
            let Some(cells) = rule.as_object() else {
                self.say(name, format_args!("row {} is no object", i + 1), "save the rule again from the editor");
                continue;
            };
            self.cells(name, i, cells, &columns);
        }
    }

    fn cells(&mut self, name: &str, row: usize, cells: &Map<String, Value>, columns: &BTreeMap<&str, &str>) {
        for (id, cell) in cells {
            if !cell.is_string() {
                let column = columns.get(id.as_str()).copied().unwrap_or(id);
                let written = serde_json::Value::from(cell.to_string());
                self.say(
                    name,
                    format_args!(
                        "row {}, column {column}: the cell is {}, not a text",
                        row + 1,
                        shorten(&cell.to_string(), 60)
                    ),
                    &format!("write the cell's expression as a JSON string: {}", shorten(&written.to_string(), 60)),
                );
            }
        }
    }

    /// A list of objects that have these texts.
    fn texts(&mut self, name: &str, content: &Value, list: &str, fields: &[&str]) {
        let Some(items) = content.get(list).and_then(Value::as_array) else {
            return self.say(
                name,
                format_args!("the node has no list of {list}"),
                "save the rule again from the editor",
            );
        };
        for (i, item) in items.iter().enumerate() {
            for field in fields {
                if text(item, field).is_none() {
                    self.say(
                        name,
                        format_args!("{list}[{i}] has no text {field}"),
                        "save the rule again from the editor",
                    );
                }
            }
        }
    }
}

fn text<'a>(value: &'a Value, field: &str) -> Option<&'a str> {
    value.get(field)?.as_str()
}

/// The nodes that lie on cycles, or between two of them.
fn on_cycles<'a>(mut left: BTreeSet<&'a str>, edges: &[(&'a str, &'a str)]) -> BTreeSet<&'a str> {
    loop {
        let between: Vec<_> = edges.iter().filter(|(s, t)| left.contains(s) && left.contains(t)).collect();
        let ends = |pick: fn(&(&'a str, &'a str)) -> &'a str| -> BTreeSet<&'a str> {
            between.iter().map(|edge| pick(edge)).collect()
        };
        let (leaves, entered) = (ends(|e| e.0), ends(|e| e.1));
        let stay: BTreeSet<_> = left.iter().copied().filter(|id| leaves.contains(id) && entered.contains(id)).collect();
        if stay.len() == left.len() {
            return left;
        }
        left = stay;
    }
}
