//! Many callers, one thread.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use weir_jdm::{Jdm, JdmConfig};
use weir_model::port::RuleEngine;
use weir_model::{FaultKind, Kind, Whose};

use crate::support::*;

#[test]
fn a_pool_needs_a_thread() {
    let fault = Jdm::new(JdmConfig { threads: 0 }).expect_err("no threads");
    assert_eq!((fault.whose, fault.kind), (Whose::Host, FaultKind::Config));
}

#[test]
fn many_callers_and_loads_share_a_pool_of_one_thread() {
    let jdm = Jdm::new(JdmConfig { threads: 1 }).expect("a pool");
    let rule = graph(&[function("function handler(i) { return { n: i.n, r: Math.random() } }")]);
    let rules = jdm.load(&one(&rule)).expect("a good rule");
    let call = |from: i64| {
        let n = Arc::new(Int64Array::from_iter_values(from..from + 5)) as ArrayRef;
        each(RecordBatch::try_from_iter([("n", n)]).expect("rows"), &[("n", Kind::Int64), ("r", Kind::Float64)])
    };
    let alone: Vec<_> = (0..12).map(|i| ask_rule(&rules, &call(i)).rows).collect();
    std::thread::scope(|scope| {
        for (i, alone) in alone.iter().enumerate() {
            let (jdm, rules, rule) = (&jdm, &rules, &rule);
            scope.spawn(move || {
                jdm.load(&one(rule)).expect("it loads beside calls");
                assert_eq!(ask_rule(rules, &call(i as i64)).rows, *alone, "the same whoever else calls");
            });
        }
    });
}

#[test]
fn rules_outlive_the_engine_that_loaded_them() {
    let jdm = Jdm::new(JdmConfig { threads: 1 }).expect("a pool");
    let rules = jdm.load(&one(&graph(&[expressions(&[("a", "1")])]))).expect("a good rule");
    drop(jdm);
    assert_eq!(whole(&rules, &Default::default()), serde_json::json!({"a": 1}));
}

#[test]
fn loading_goes_on_while_all_threads_evaluate() {
    let jdm = Jdm::new(JdmConfig { threads: 1 }).expect("a pool");
    let slow = jdm.load(&one(&graph(&[function("function handler(i) { while (true) {} }")]))).expect("a good rule");
    std::thread::scope(|scope| {
        let caller = scope.spawn(|| slow.evaluate("r", &want(&[]), context()).is_err());
        jdm.load(&one(&graph(&[]))).expect("it has a thread of its own");
        assert!(caller.join().expect("no panic"));
    });
}
