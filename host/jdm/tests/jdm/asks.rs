//! Rules that ask other rules.

use serde_json::json;
use weir_model::port::RuleCall;

use crate::support::*;

fn constant(value: &str) -> String {
    graph(&[expressions(&[("v", value)])]).to_string()
}

#[test]
fn a_rule_is_found_by_path_and_by_name_inside_the_rules_folder() {
    for key in ["inner", "inner.json", "rules/inner.json", "sub/deep", "sub/deep.json", "sub_deep"] {
        let rule = graph(&[ask(key)]).to_string();
        let rules = load(&ruleset(&[
            ("rules/r.json", &rule),
            ("rules/inner.json", &constant("1")),
            ("rules/sub/deep.json", &constant("1")),
        ]));
        assert_eq!(whole(&rules, &RuleCall::default()), json!({"v": 1}), "{key}");
    }
}

#[test]
fn nothing_outside_of_the_rules_folder_is_found() {
    let outside = constant("1");
    for key in [
        "nowhere",
        "../secret.json",
        "../acme/rules/inner.json",
        "/etc/hostname",
        "rules/../assets/a.json",
        "assets/a.json",
        "a",
        ".",
        "rules\\inner",
    ] {
        let rule = graph(&[ask(key)]).to_string();
        let mut ruleset =
            ruleset(&[("rules/r.json", &rule), ("rules/inner.json", &outside), ("assets/a.json", &outside)]);
        ruleset.manifest.rules.remove("assets_a");
        let all = problems(&ruleset);
        assert_eq!(all.len(), 1, "{key}: {all:?}");
        assert_eq!(all[0].message, format!("there is no rule '{key}' in the rules folder"));
        assert_eq!(all[0].field, format!("Ask {key}"));
    }
}

#[test]
fn circles_are_refused_with_their_members() {
    let all = problems(&ruleset(&[
        ("rules/a.json", &graph(&[ask("b")]).to_string()),
        ("rules/b.json", &graph(&[ask("a")]).to_string()),
    ]));
    assert!(
        all.iter()
            .any(|p| p.message == "rules ask one another in a circle: rules/a.json -> rules/b.json -> rules/a.json"),
        "{all:?}"
    );
    let own = problem(&graph(&[ask("r")]));
    assert_eq!(own.message, "rules ask one another in a circle: rules/r.json -> rules/r.json");
}

/// Rules `r`, `c1`, `c2` ... that ask one another, so many in all.
fn chain(rules: usize) -> weir_model::Ruleset {
    let name = |i: usize| {
        if i == 0 { "r".to_owned() } else { format!("c{i}") }
    };
    let mut files = Vec::new();
    for i in 0..rules {
        let text = if i + 1 == rules { constant("7") } else { graph(&[ask(&name(i + 1))]).to_string() };
        files.push((format!("rules/{}.json", name(i)), text));
    }
    let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    ruleset(&files)
}

#[test]
fn ten_rules_in_a_row_are_allowed_and_eleven_are_not() {
    assert_eq!(whole(&load(&chain(10)), &RuleCall::default()), json!({"v": 7}));
    let all = problems(&chain(11));
    assert_eq!(all[0].message, "more than 10 rules ask one another in a row");
}

#[test]
fn a_problem_of_an_asked_rule_is_said_of_its_file_once() {
    let bad = graph(&[function("const x = 1")]).to_string();
    let outer = graph(&[ask("bad")]).to_string();
    let all = problems(&ruleset(&[("rules/r.json", &outer), ("rules/s.json", &outer), ("rules/bad.json", &bad)]));
    assert_eq!(all.len(), 1, "{all:?}");
    assert_eq!((all[0].file.as_str(), all[0].field.as_str()), ("rules/bad.json", "Fn"));
}

#[test]
fn function_nodes_of_asked_rules_have_time_and_seed_too() {
    let inner = graph(&[function("function handler(i) { return { at: new Date().toISOString(), r: Math.random() } }")])
        .to_string();
    let rules = load(&ruleset(&[("rules/r.json", &graph(&[ask("inner")]).to_string()), ("rules/inner.json", &inner)]));
    let got = whole(&rules, &RuleCall::default());
    assert_eq!(got["at"], json!(T));
    assert_eq!(whole(&rules, &RuleCall::default()), got);
}

#[test]
fn an_asked_rule_that_runs_for_each_element_draws_anew_for_each() {
    let inner = graph(&[function("function handler(i) { return { r: Math.random() } }")]).to_string();
    let mut node = ask("inner");
    node["content"]["executionMode"] = json!("loop");
    node["content"]["inputField"] = json!("[{n: 1}, {n: 2}, {n: 3}]");
    node["content"]["outputPath"] = json!("all");
    let rules = load(&ruleset(&[("rules/r.json", &graph(&[node]).to_string()), ("rules/inner.json", &inner)]));
    let got = whole(&rules, &RuleCall::default());
    let mut drawn: Vec<String> = (0..3).map(|i| got["all"][i]["r"].to_string()).collect();
    drawn.sort();
    drawn.dedup();
    assert_eq!(drawn.len(), 3, "{got}");
}

#[test]
fn rules_that_ask_rules_many_times_over_load_and_are_stopped() {
    // 60 nodes of r ask a, 60 of a ask b ...: 60^4 evaluations of d.
    let wide = |key: &str| {
        let nodes: Vec<_> = (0..60)
            .map(|i| {
                let mut node = ask(key);
                node["id"] = json!(format!("n{i}"));
                node
            })
            .collect();
        graph(&nodes).to_string()
    };
    let files = [("r", wide("a")), ("a", wide("b")), ("b", wide("c")), ("c", wide("d")), ("d", constant("1"))];
    let files: Vec<_> = files.iter().map(|(name, text)| (format!("rules/{name}.json"), text.as_str())).collect();
    let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
    let mut ruleset = ruleset(&files);
    ruleset.limits.rule_time = weir_model::Span::millis(30);
    let fault = fault(&load(&ruleset), &RuleCall::default());
    assert_eq!(fault.field.as_deref(), Some("rule_time"), "{fault}");
}
