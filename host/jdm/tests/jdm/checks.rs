//! What is refused when rules are loaded, in which words.

use serde_json::{Value, json};
use weir_model::Problem;

use crate::support::*;

/// `(field, message, fix)` of the only problem.
fn said(rule: &Value) -> (String, String, String) {
    let Problem { file, field, message, fix, may_be_partial } = problem(rule);
    assert_eq!((file.as_str(), may_be_partial), ("rules/r.json", false));
    assert!(!fix.is_empty(), "{message}: what to do is not said");
    (field, message, fix)
}

fn node(kind: &str, content: Value) -> Value {
    json!({"id": "n", "name": "Node", "type": kind, "content": content})
}

#[test]
fn a_file_that_ends_too_early_may_be_partial_and_bad_json_is_not() {
    for (text, partial) in [("", true), ("{\"nodes\": [", true), ("{\"nodes\": [}", false), ("nodes", false)] {
        let all = problems(&ruleset(&[("rules/r.json", text)]));
        assert_eq!(all.len(), 1);
        assert!(all[0].message.starts_with("not JSON as expected: "), "{}", all[0]);
        assert_eq!(all[0].may_be_partial, partial, "{text}");
    }
}

#[test]
fn a_missing_file_is_a_problem_of_the_manifest() {
    let mut ruleset = one(&graph(&[]));
    ruleset.content.clear();
    let all = problems(&ruleset);
    assert_eq!((all[0].file.as_str(), all[0].field.as_str()), ("scenario.toml", "rules.r"));
}

#[test]
fn every_problem_of_every_file_is_said() {
    let bad = graph(&[node("customNode", json!({})), expressions(&[("a", "1 +"), ("b", "rand(1)")])]).to_string();
    let worse = json!({"nodes": [], "edges": []}).to_string();
    let all = problems(&ruleset(&[("rules/a.json", &bad), ("rules/b.json", &worse), ("rules/c.json", "{")]));
    let files: Vec<&str> = all.iter().map(|p| p.file.as_str()).collect();
    assert_eq!(files, ["rules/a.json", "rules/b.json", "rules/c.json"]);
}

#[test]
fn what_is_no_graph_is_refused() {
    assert!(said(&json!([])).1.starts_with("this is no JDM graph"));
    assert!(said(&json!({"nodes": []})).1.starts_with("this is no JDM graph"));
    assert!(said(&json!({"blocks": []})).1.contains("policy document"));
    assert_eq!(said(&json!({"nodes": [], "edges": []})).1, "there is no input node");
    let mut two = graph(&[]);
    two["nodes"].as_array_mut().expect("nodes").push(json!({"id": "in2", "name": "B", "type": "inputNode"}));
    assert_eq!(said(&two).1, "there are 2 input nodes");
    let mut twice = graph(&[]);
    twice["nodes"][1]["id"] = json!("in");
    twice["edges"] = json!([]);
    assert_eq!(said(&twice).1, "two nodes have the id 'in'");
    let mut lost = graph(&[]);
    lost["edges"][0]["targetId"] = json!("nowhere");
    assert_eq!(said(&lost).1, "there is no node with the id 'nowhere'");
}

#[test]
fn cycles_name_their_nodes() {
    let mut rule = graph(&[expressions(&[("a", "1")]), function("function handler(i) { return i }")]);
    rule["edges"].as_array_mut().expect("edges").push(json!({"id": "back", "sourceId": "f", "targetId": "e"}));
    let (field, message, _) = said(&rule);
    assert_eq!((field.as_str(), message.as_str()), ("Expr", "nodes lead back to themselves: Expr, Fn"));
}

#[test]
fn nodes_that_cannot_run_here_are_refused() {
    assert_eq!(
        said(&graph(&[node("customNode", json!({"kind": "x", "config": {}}))])).1,
        "custom nodes are not supported"
    );
    let (field, message, _) = said(&graph(&[node("quantumNode", json!({}))]));
    assert_eq!((field.as_str(), message.as_str()), ("Node", "'quantumNode' is no kind of node that is known"));
    let module = node("functionNode", json!({"source": "export const handler = () => ({})"}));
    let (field, message, fix) = said(&graph(&[module]));
    assert_eq!(field, "Node");
    assert!(message.contains("may reach the network") && fix.contains("functions = \"native\""), "{message}; {fix}");
}

#[test]
fn cells_are_texts_and_tables_have_a_hit_policy() {
    let mut rule = graph(&[table(&["n"], &["out"], &[&[">= 50", "1"]])]);
    rule["nodes"][1]["content"]["rules"][0]["o-out"] = json!(42);
    let (field, message, fix) = said(&rule);
    assert_eq!(field, "Table");
    assert_eq!(message, "row 1, column out: the cell is 42, not a text");
    assert_eq!(fix, "write the cell's expression as a JSON string: \"42\"");
    let mut rule = graph(&[table(&["n"], &["out"], &[])]);
    rule["nodes"][1]["content"].as_object_mut().expect("content").shift_remove("hitPolicy");
    assert_eq!(said(&rule).1, "the decision table has no hitPolicy");
    rule["nodes"][1]["content"]["hitPolicy"] = json!("best");
    assert_eq!(said(&rule).1, "hitPolicy \"best\" is not known");
}

#[test]
fn expressions_that_do_not_compile_name_node_place_and_expression() {
    let (field, message, _) = said(&graph(&[table(&["n"], &["out"], &[&[">= 1", "1"], &[">= ", "1"]])]));
    assert_eq!(field, "Table");
    assert!(message.starts_with("row 2, column n: >= does not compile: "), "{message}");
    let (field, message, _) = said(&graph(&[table(&["n"], &["out"], &[&[">= 1", "\"open"]])]));
    assert_eq!(field, "Table");
    assert!(message.starts_with("row 1, column out: \"open does not compile: "), "{message}");
    let (field, message, _) = said(&graph(&[expressions(&[("total", "nofunction(1)")])]));
    assert_eq!(field, "Expr");
    assert!(message.starts_with("total: nofunction(1) does not compile: "), "{message}");
    let switch = node("switchNode", json!({"statements": [{"id": "s", "condition": "a >"}]}));
    assert!(said(&graph(&[switch])).1.starts_with("a condition: a > does not compile: "));
    let mut rule = graph(&[expressions(&[("a", "1")])]);
    rule["nodes"][1]["content"]["inputField"] = json!("a..");
    assert!(said(&rule).1.starts_with("the node's input field: a.. does not compile: "));
    let mut rule = graph(&[table(&["n"], &["out"], &[])]);
    rule["nodes"][1]["content"]["inputs"][0]["field"] = json!("a[");
    assert!(said(&rule).1.starts_with("the field of an input column: a[ does not compile: "));
}

#[test]
fn expressions_that_read_the_clock_or_draw_are_refused() {
    let (field, message, fix) = said(&graph(&[expressions(&[("at", "d()")])]));
    assert_eq!((field.as_str(), fix.as_str()), ("Expr", "make it an input of the rule"));
    assert_eq!(message, "at: d() d() reads the clock, so the same batch would not give the same answer again");
    let cell = said(&graph(&[table(&["n"], &["out"], &[&["", "rand(6)"]])])).1;
    assert!(cell.starts_with("row 1, column out: rand(6) rand() draws a random number"), "{cell}");
    let cell = said(&graph(&[table(&["at"], &["out"], &[&["< date('now')", "1"]])])).1;
    assert!(cell.contains("date('now') reads the clock"), "{cell}");
}

#[test]
fn a_function_node_must_define_a_handler() {
    for (source, message) in [
        ("// function handler(input) {}\nfunction handlr(input) {}", "it defines no handler"),
        ("const text = 'function handler() {}'", "it defines no handler"),
        ("", "it defines no handler"),
        ("const handler = 5", "its handler is no function but number"),
    ] {
        let (field, said, fix) = said(&graph(&[function(source)]));
        assert_eq!((field.as_str(), said.as_str()), ("Fn", message), "{source}");
        assert_eq!(fix, "write function handler(input) {...}");
    }
}

#[test]
fn a_module_in_an_older_form_node_is_told_how_to_be_written() {
    for source in [
        "export const handler = (input) => ({});",
        "\n/* a */ export default function handler(input) {}",
        "import dayjs from 'dayjs';\nfunction handler(input) {}",
        "const a = 1;\nimport { a } from 'b'",
        "function handler(input) {}\nexport { handler }",
    ] {
        let (field, message, fix) = said(&graph(&[function(source)]));
        assert_eq!(field, "Fn");
        assert!(message.starts_with("export and import cannot be used"), "{source}: {message}");
        assert_eq!(fix, "write function handler(input) {...}");
    }
}

#[test]
fn a_source_that_does_not_run_is_refused_with_the_line() {
    let (_, message, fix) = said(&graph(&[function("function handler(input) {\n  return {;\n}")]));
    assert!(
        message.starts_with("its source does not run: SyntaxError: ") && message.ends_with("(near line 2)"),
        "{message}"
    );
    assert_eq!(fix, "correct the source");
    let (_, message, _) = said(&graph(&[function("let a = null.b; function handler() {}")]));
    assert_eq!(message, "its source does not run: TypeError: cannot read property 'b' of null (near line 1)");
    let (_, message, _) = said(&graph(&[function("while (true) {} function handler() {}")]));
    assert_eq!(message, "its source runs for longer than 500ms before it defines anything");
    for source in
        ["const a = []; for (;;) a.push(a.length)", "try { 'x'.repeat(2 ** 28) } catch {} function handler() {}"]
    {
        let (_, message, _) = said(&graph(&[function(source)]));
        assert_eq!(message, "its source needs more than 64 MB of memory before it defines anything");
    }
    // The libraries are there, as when it runs.
    let message =
        problem(&graph(&[function("const a = new Big(1); let b = dayjs().c.d;\nfunction handler() {}")])).message;
    assert!(message.starts_with("its source does not run: TypeError: "), "{message}");
}

fn with_schema(node: usize, schema: Value) -> Value {
    let mut rule = graph(&[]);
    rule["nodes"][node]["content"] = json!({"schema": schema});
    rule
}

#[test]
fn schemas_are_local_texts() {
    for (place, name) in [(0, "Request"), (1, "Response")] {
        let (field, message, _) = said(&with_schema(place, json!({"type": "object"})));
        assert_eq!((field.as_str(), message.as_str()), (name, "the schema is not a text"));
        let remote = json!({"properties": {"a": {"$ref": "http://127.0.0.1:9/a.json"}}}).to_string();
        let (field, message, _) = said(&with_schema(place, json!(remote)));
        assert_eq!(
            (field.as_str(), message.as_str()),
            (name, "the schema's $ref 'http://127.0.0.1:9/a.json' is not local")
        );
        let file = json!({"$ref": "file:///etc/hostname"}).to_string();
        assert!(said(&with_schema(place, json!(file))).1.contains("is not local"));
        let wrong = json!({"type": "numbr"}).to_string();
        assert!(said(&with_schema(place, json!(wrong))).1.starts_with("the schema is not valid: "));
        let dangling = json!({"$ref": "#/definitions/none"}).to_string();
        assert!(said(&with_schema(place, json!(dangling))).1.starts_with("the schema is not valid: "));
    }
}

#[test]
fn a_good_schema_is_held_against_the_input() {
    let schema = json!({"type": "object", "properties": {"n": {"$ref": "#/definitions/n"}}, "required": ["n"],
        "definitions": {"n": {"type": "number"}}});
    let rules = load(&one(&with_schema(0, json!(schema.to_string()))));
    let why = failed(&rules, &weir_model::port::RuleCall::default());
    assert!(why.starts_with("Request: ") && why.contains("\"n\" is a required property"), "{why}");
}

#[test]
fn the_size_of_a_file_is_bounded() {
    let rule = graph(&[]);
    let mut ruleset = one(&rule);
    let size = rule.to_string().len() as u64;
    ruleset.limits.rule_bytes = size;
    load(&ruleset);
    ruleset.limits.rule_bytes = size - 1;
    let all = problems(&ruleset);
    assert_eq!(all[0].message, format!("the file has {size} bytes, and rule_bytes is {}", size - 1));
    assert_eq!(all[0].field, "rule_bytes");
}

#[test]
fn the_number_of_nodes_is_bounded_and_so_is_the_number_of_problems() {
    let many = |n: usize| {
        let nodes: Vec<_> = (0..n)
            .map(|i| {
                let mut node = expressions(&[("a", "1 +")]);
                node["id"] = json!(format!("n{i}"));
                node
            })
            .collect();
        graph(&nodes)
    };
    assert_eq!(said(&many(999)).1, "there are 1001 nodes, and 1000 are allowed");
    let all = problems(&one(&many(150)));
    assert_eq!(all.len(), 101);
    assert_eq!(all[100].message, "there are 50 more problems in this file");
}

#[test]
fn checking_ends_with_compile_time() {
    let mut nodes = Vec::new();
    for i in 0..20 {
        let mut node = function("while (true) {} function handler() {}");
        node["id"] = json!(format!("n{i}"));
        nodes.push(node);
    }
    let mut ruleset = one(&graph(&nodes));
    ruleset.limits.compile_time = weir_model::Span::millis(700);
    let all = problems(&ruleset);
    assert!(all.len() < 6, "{all:?}");
    assert_eq!(all[all.len() - 1].message, "checking the rule takes longer than compile_time");
}
