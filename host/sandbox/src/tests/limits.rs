//! Limits, each obeyed and violated, by guests of a few instructions.

use std::sync::Arc;

use weir_model::batch::Stage;
use weir_model::port::{DetectFailure, Verdict};
use weir_model::{FaultKind, Retry, Span, Whose};

use super::guest::{Guest, Place, TestBatch};

fn broken(failure: impl AsRef<DetectFailure>, kind: FaultKind, limit: &str) {
    let fault = &failure.as_ref().fault;
    assert_eq!((fault.whose, fault.retry, fault.kind), (Whose::Tenant, Retry::Never, kind), "{fault}");
    assert_eq!((fault.stage, fault.field.as_deref()), (Some(Stage::Detect), Some(limit)), "{fault}");
    let fix = format!("use less, or raise limits.{limit} in scenario.toml or tenant.toml");
    assert_eq!(fault.fix.as_deref(), Some(fix.as_str()));
}

const LOG: &str = r#"(import "weir:detect/log@0.1.0" "write" (func $log (param i32 i32 i32)))"#;
const SPIN: &str =
    "(loop $l (br_if $l (i32.lt_u (local.tee 1 (i32.add (local.get 1) (i32.const 1))) (i32.const 100000))))";

#[test]
fn a_quiet_plugin_judges() {
    let place = Place::new();
    let done = place.run(&Guest::default(), |_| ()).expect("judged");
    assert_eq!(done.verdict, Verdict::Judged);
    assert!(done.outputs.is_empty() && done.alarms.is_empty() && done.log.is_empty());
    assert_eq!(done.usage.memory_peak, 4 * 65_536);
    assert!(done.usage.fuel > 0);
}

#[test]
fn cpu() {
    let place = Place::new();
    let guest = Guest { detect: SPIN, ..Guest::default() };
    let done = place.run(&guest, |l| l.cpu_fuel = 1_000_000).expect("enough");
    let again = place.run(&guest, |l| l.cpu_fuel = 1_000_000).expect("enough");
    assert_eq!(done.usage.fuel, again.usage.fuel, "fuel is a function of the input");
    broken(place.run(&guest, |l| l.cpu_fuel = 100_000).expect_err("too much"), FaultKind::Cpu, "cpu_fuel");
}

#[test]
fn the_backstop_is_the_hosts_fault_and_may_pass() {
    let place = Place::new();
    let guest = Guest { detect: "(loop $l (br $l))", ..Guest::default() };
    let failure =
        place.run(&guest, |l| (l.cpu_fuel, l.deadline) = (u64::MAX, Span::millis(100))).expect_err("never comes back");
    let fault = &failure.fault;
    assert_eq!((fault.whose, fault.retry, fault.kind), (Whose::Host, Retry::Later, FaultKind::Deadline));
}

#[test]
fn memory() {
    let place = Place::new();
    // Grows by 8 pages and dies when it gets none, as an allocator does.
    let grow = "(if (i32.eq (memory.grow (i32.const 8)) (i32.const -1)) (then unreachable))";
    let guest = Guest { detect: grow, ..Guest::default() };
    assert!(place.run(&guest, |l| l.memory_bytes = 12 * 65_536).is_ok());
    let failure = place.run(&guest, |l| l.memory_bytes = 12 * 65_536 - 1).expect_err("too much");
    broken(failure, FaultKind::Memory, "memory_bytes");
    let refused = place.load(&guest.component(), |l| l.memory_bytes = 65_536).err().expect("not even its first pages");
    assert_eq!(refused[0].field, "memory_bytes");
}

#[test]
fn memory_that_was_refused_and_not_needed_is_no_fault() {
    let place = Place::new();
    let guest = Guest { detect: "(drop (memory.grow (i32.const 8)))", ..Guest::default() };
    assert!(place.run(&guest, |l| l.memory_bytes = 5 * 65_536).is_ok());
}

#[test]
fn stack() {
    let place = Place::new();
    let guest = Guest {
        more: "(func $deep (param i32) (result i32) (i32.add (call $deep (local.get 0)) (i32.const 1)))",
        detect: "(drop (call $deep (i32.const 0)))",
        ..Guest::default()
    };
    let fault = place.run(&guest, |_| ()).expect_err("too deep").fault;
    assert_eq!(
        (fault.whose, fault.kind, fault.field.as_deref()),
        (Whose::Tenant, FaultKind::Resources, Some("stack_bytes"))
    );
    let refused = place.load(&guest.component(), |l| l.stack_bytes = 1).err().expect("one size for all");
    assert_eq!(refused[0].field, "limits.stack_bytes");
}

#[test]
fn instances_and_tables() {
    let place = Place::new();
    let guest = Guest {
        more: "(table 100 1000 funcref) (func $grow (drop (table.grow 0 (ref.null func) (i32.const 100))))",
        detect: "(if (i32.eq (table.grow 0 (ref.null func) (i32.const 100)) (i32.const -1)) (then unreachable))",
        ..Guest::default()
    };
    // Adapters that the component's encoder adds have small tables of their own.
    assert!(place.run(&guest, |l| l.table_elements = 250).is_ok());
    let failure = place.run(&guest, |l| l.table_elements = 199).expect_err("too many");
    broken(failure, FaultKind::Resources, "table_elements");
    let refused = place.load(&guest.component(), |l| l.instances = 0).err().expect("too many");
    assert_eq!(refused[0].field, "instances");
}

#[test]
fn host_call_bytes() {
    let place = Place::new();
    let guest = Guest {
        imports: LOG,
        detect: "(call $log (i32.const 1) (i32.const 4096) (i32.const 1000))",
        ..Guest::default()
    };
    assert!(place.run(&guest, |l| l.host_call_bytes = 1_000).is_ok());
    let failure = place.run(&guest, |l| l.host_call_bytes = 999).expect_err("too much");
    broken(failure, FaultKind::HostCallBytes, "host_call_bytes");
}

#[test]
fn host_calls() {
    let place = Place::new();
    let guest = Guest {
        imports: LOG,
        detect: "(loop $l (call $log (i32.const 1) (i32.const 200) (i32.const 1))
                   (br_if $l (i32.lt_u (local.tee 1 (i32.add (local.get 1) (i32.const 1))) (i32.const 10))))",
        ..Guest::default()
    };
    let done = place.run(&guest, |l| (l.host_calls, l.log_lines) = (10, 3)).expect("ten calls");
    assert_eq!((done.usage.host_calls, done.log.len()), (10, 4));
    assert_eq!(done.log[3].message, "7 more lines were dropped");
    let failure = place.run(&guest, |l| l.host_calls = 9).expect_err("too many");
    broken(failure, FaultKind::HostCalls, "host_calls");
}

const BATCH: &str = r#"
    (import "weir:detect/batches@0.1.0" "[method]batch.input" (func $input (param i32 i32 i32 i32)))
    (import "weir:detect/batches@0.1.0" "[method]batch.query" (func $query (param i32 i32 i32) (result i32)))
    (import "weir:detect/batches@0.1.0" "[method]query.run" (func $run (param i32 i32)))
    (import "weir:detect/batches@0.1.0" "[method]frame.take" (func $take (param i32 i32 i32 i32)))
    (import "weir:detect/batches@0.1.0" "[method]frame.rows" (func $rows (param i32) (result i32)))
    (import "weir:detect/batches@0.1.0" "[resource-drop]query" (func $drop-query (param i32)))"#;

#[test]
fn handles() {
    let place = Place::new();
    let many = |drop: &'static str| Guest { imports: BATCH, detect: drop, ..Guest::default() };
    let kept = many(
        "(loop $l (drop (call $query (local.get 0) (i32.const 201) (i32.const 1)))
           (br_if $l (i32.lt_u (local.tee 1 (i32.add (local.get 1) (i32.const 1))) (i32.const 10))))",
    );
    // Ten queries and the batch itself.
    assert!(place.run(&kept, |l| l.handles = 11).is_ok());
    broken(place.run(&kept, |l| l.handles = 10).expect_err("too many"), FaultKind::Resources, "handles");
    let dropped = many(
        "(loop $l (call $drop-query (call $query (local.get 0) (i32.const 201) (i32.const 1)))
           (br_if $l (i32.lt_u (local.tee 1 (i32.add (local.get 1) (i32.const 1))) (i32.const 10))))",
    );
    assert!(place.run(&dropped, |l| l.handles = 2).is_ok());
}

#[test]
fn rows_that_repeat_are_charged_before_they_are_made() {
    let place = Place::new();
    // All indexes are 0: memory that nobody wrote. 40,000 rows of 8 + 4 + 1 bytes, of a frame of two rows.
    let guest = Guest {
        imports: BATCH,
        detect: "(call $input (local.get 0) (i32.const 201) (i32.const 1) (i32.const 2048))
                 (call $take (i32.load (i32.const 2052)) (i32.const 8192) (i32.const 10000) (i32.const 2048))
                 (if (i32.load8_u (i32.const 2048)) (then unreachable))
                 (if (i32.ne (call $rows (i32.load (i32.const 2052))) (i32.const 10000)) (then unreachable))",
        ..Guest::default()
    };
    let memory = 4 * 65_536;
    assert!(place.run(&guest, |l| l.memory_bytes = memory + 200_000).is_ok());
    let failure = place.run(&guest, |l| l.memory_bytes = memory + 100_000).expect_err("too much");
    broken(failure, FaultKind::Memory, "memory_bytes");
}

#[test]
fn nothing_survives_from_one_batch_to_the_next() {
    let place = Place::new();
    let guest = Guest {
        more: "(global $runs (mut i32) (i32.const 0))",
        detect: "(if (global.get $runs) (then unreachable)) (global.set $runs (i32.const 1))
                 (if (i32.load (i32.const 4096)) (then unreachable)) (i32.store (i32.const 4096) (i32.const 1))",
        ..Guest::default()
    };
    let plugin = place.load(&guest.component(), |_| ()).expect("a plugin");
    let used = |_| plugin.detect(Arc::new(TestBatch::default())).expect("fresh").usage;
    let all: Vec<_> = (0..5).map(used).collect();
    assert!(all.windows(2).all(|w| w[0] == w[1]), "{all:?}");
}
