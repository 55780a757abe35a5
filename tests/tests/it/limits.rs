//! Limits, obeyed and violated, in one host: a scenario that takes too much is parked with a fault that says so, and the
//! others of the same minute commit.

use weir_model::batch::Stage;
use weir_model::port::Ledger;
use weir_model::service::{ScenarioState, Service};
use weir_model::{BatchId, FaultKind, Retry, RunKey, ScenarioId, Whose};
use weir_pipeline::scenario::Step;

use crate::support::example::{Example, guest, repository};

const EVENTS: &str = r#"
event_time = "at"
retention = "5m"
[schema]
at = { type = "timestamp", required = true }
value = "int64"
[source]
type = "generate"
interval = "5s"
sql = "SELECT arrow_cast($now, 'Timestamp(Microsecond, Some(\"UTC\"))') AS at, CAST(1 AS BIGINT) AS value"
"#;

/// A behaviour of the probe under a limit that it keeps to, and the same with a little more.
struct Pair {
    limit: &'static str,
    at: u64,
    obeys: &'static str,
    violates: &'static str,
    kind: FaultKind,
}

/// A limit, its value, what obeys it and what violates it.
const fn pair(limit: &'static str, at: u64, obeys: &'static str, violates: &'static str, kind: FaultKind) -> Pair {
    Pair { limit, at, obeys, violates, kind }
}

const PAIRS: [Pair; 12] = [
    pair("cpu_fuel", 10_000_000, "do = 'spin'\nrounds = 100_000", "do = 'spin'", FaultKind::Cpu),
    pair(
        "memory_bytes",
        32 << 20,
        "do = 'allocate'\nbytes = 16_777_216",
        "do = 'allocate'\nbytes = 33_554_432",
        FaultKind::Memory,
    ),
    pair(
        "host_call_bytes",
        100_000,
        "do = 'host-call-bytes'\nbytes = 90_000",
        "do = 'host-call-bytes'\nbytes = 100_001",
        FaultKind::HostCallBytes,
    ),
    pair(
        "host_calls",
        1_000,
        "do = 'host-calls'\ncount = 900",
        "do = 'host-calls'\ncount = 1_001",
        FaultKind::HostCalls,
    ),
    pair("handles", 50, "do = 'handles'\ncount = 40", "do = 'handles'\ncount = 51", FaultKind::Resources),
    pair("output_rows", 100, "do = 'return-big'\nrows = 100", "do = 'return-big'\nrows = 101", FaultKind::Output),
    pair("alarms", 20, "do = 'alarms'\ncount = 20", "do = 'alarms'\ncount = 21", FaultKind::Alarms),
    pair("current_alarms", 20, "do = 'alarms'\ncount = 20", "do = 'alarms'\ncount = 21", FaultKind::Alarms),
    pair(
        "alarm_bytes",
        1_000,
        "do = 'alarms'\ncount = 1\nbytes = 900",
        "do = 'alarms'\ncount = 1\nbytes = 1_001",
        FaultKind::Alarms,
    ),
    pair(
        "alarm_fields",
        5,
        "do = 'alarms'\ncount = 1\nfields = 5",
        "do = 'alarms'\ncount = 1\nfields = 6",
        FaultKind::Alarms,
    ),
    pair(
        "state_value_bytes",
        1_000,
        "do = 'state'\nkeys = 1\nbytes = 1_000",
        "do = 'state'\nkeys = 1\nbytes = 1_001",
        FaultKind::State,
    ),
    pair(
        "state_keys",
        10,
        "do = 'state'\nkeys = 10\nbytes = 1",
        "do = 'state'\nkeys = 11\nbytes = 1",
        FaultKind::State,
    ),
];

/// A scenario of its own for one behaviour of the probe.
fn scenario(example: &Example, name: &str, behaviour: &str, limit: &str, at: u64) -> ScenarioId {
    let folder = format!("netops/{name}");
    let table = name.replace('-', "_");
    let manifest = format!(
        "plugin = \"plugins/probe.wasm\"\ntrigger = {{ interval = \"1m\" }}\n[inputs.events]\nmode = \"new\"\n\
         [queries.rows]\nfile = \"queries/rows.sql\"\nparams = {{ to = \"timestamp\" }}\n\
         [rules]\njudge = \"rules/judge.json\"\n[outputs.probe]\ntable = \"{table}\"\n\
         [limits]\n{limit} = {at}\n[config]\n{behaviour}\n"
    );
    example.write(&format!("{folder}/scenario.toml"), manifest.as_bytes());
    example.write(&format!("{folder}/queries/rows.sql"), b"SELECT value FROM events WHERE at < $to");
    example.write(
        &format!("{folder}/rules/judge.json"),
        &std::fs::read(repository().join("rules/network-cep/1-2.json")).unwrap(),
    );
    example.write(&format!("{folder}/plugins/probe.wasm"), &std::fs::read(guest("probe.wasm")).unwrap());
    format!("netops/{name}").parse().unwrap()
}

fn name(limit: &str, what: &str) -> String {
    format!("{}-{what}", limit.replace('_', "-"))
}

#[test]
fn what_takes_too_much_is_parked_and_the_others_of_the_same_minute_commit() {
    let example = Example::new();
    example.write("netops/streams/events.toml", EVENTS.as_bytes());
    for Pair { limit, at, obeys, violates, .. } in &PAIRS {
        scenario(&example, &name(limit, "obeyed"), obeys, limit, *at);
        scenario(&example, &name(limit, "violated"), violates, limit, *at);
    }
    let live = example.open();
    let count = PAIRS.len() * 2 + 1;
    for view in weir_model::port::RuleStore::scenarios(live.built.store.as_ref()) {
        let view = example.wait_for(&live, &view.id, "it is active", |v| v.pending.is_none());
        assert_eq!(view.rejected, None, "{}", view.id);
    }
    live.host.reconcile().unwrap();
    assert_eq!(live.host.status().unwrap().scenarios.len(), count);

    for Pair { limit, kind, .. } in &PAIRS {
        let violated: ScenarioId = format!("netops/{}", name(limit, "violated")).parse().unwrap();
        let fault = match live.host.step(&violated).unwrap() {
            Step::Parked(fault) => fault,
            other => panic!("{violated}: {other:?}"),
        };
        assert_eq!((fault.whose, fault.retry, fault.kind), (Whose::Tenant, Retry::Never, *kind), "{limit}: {fault}");
        assert_eq!(fault.field.as_deref(), Some(*limit), "{fault}");
        assert_eq!(fault.stage, Some(Stage::Detect), "{fault}");
        assert!(fault.fix.as_ref().is_some_and(|f| f.contains(limit)), "{fault}");
        // It stays parked, and nothing of it was kept.
        assert!(matches!(live.host.step(&violated).unwrap(), Step::Parked(again) if again == fault));
        assert!(live.built.ledger.head(&RunKey::live(violated.clone())).unwrap().is_none(), "{violated}");

        let obeyed: ScenarioId = format!("netops/{}", name(limit, "obeyed")).parse().unwrap();
        let record = match live.host.step(&obeyed).unwrap() {
            Step::Committed(record) => record,
            other => panic!("{obeyed}: {other:?}"),
        };
        assert_eq!((record.plan.id, record.outcome), (BatchId(1), weir_model::batch::Outcome::Judged), "{obeyed}");
    }
    // S1 ran in the same minute, and in the next one everybody goes on who did before.
    assert_eq!(example.batches(&live), 1);
    assert_eq!(example.minute(&live), 1);
    let status = live.host.status().unwrap();
    for one in &status.scenarios {
        let parked = one.scenario.as_str().ends_with("-violated");
        let expected = if parked { ScenarioState::Parked } else { ScenarioState::Running };
        assert_eq!((one.state, one.fault.is_some()), (expected, parked), "{}", one.scenario);
    }
    let alarms = live.host.alarms(Some(&"netops/alarms-obeyed".parse().unwrap()), false).unwrap();
    assert_eq!(alarms.len(), 20);
    let rows = example.rows(&live, "select count(*) as n from output_rows_obeyed");
    assert_eq!(rows, [serde_json::json!({"n": 100})]);
}

#[test]
fn a_parked_scenario_goes_on_when_its_limit_is_raised() {
    let example = Example::new();
    example.write("netops/streams/events.toml", EVENTS.as_bytes());
    let id = scenario(&example, "greedy", "do = 'return-big'\nrows = 101", "output_rows", 100);
    let live = example.open();
    example.wait_for(&live, &id, "it is active", |v| v.active.is_some());
    live.host.reconcile().unwrap();
    let parked = live.host.step(&id).unwrap();
    assert!(matches!(&parked, Step::Parked(f) if f.kind == FaultKind::Output), "{parked:?}");
    example.edit("netops/greedy/scenario.toml", "output_rows = 100", "output_rows = 101");
    let before = live.host.status().unwrap().scenarios.into_iter().find(|s| s.scenario.as_str() == "greedy").unwrap();
    example
        .wait_for(&live, &id, "the edit is active", |v| v.active.as_ref().map(|a| a.ruleset.digest) != before.ruleset);
    let record = match live.host.step(&id).unwrap() {
        Step::Committed(record) => record,
        other => panic!("{other:?}"),
    };
    assert_eq!(record.plan.id, BatchId(1), "the batch that failed was never one");
}

#[test]
fn lines_of_a_log_that_are_too_many_are_dropped_and_no_fault() {
    let example = Example::new();
    example.write("netops/streams/events.toml", EVENTS.as_bytes());
    let few = scenario(&example, "few-lines", "do = 'log'\nlines = 10", "log_lines", 10);
    let many = scenario(&example, "many-lines", "do = 'log'\nlines = 15", "log_lines", 10);
    let live = example.open();
    for (id, last, lines) in [(few, "9 ", 10), (many, "5 more lines were dropped", 11)] {
        example.wait_for(&live, &id, "it is active", |v| v.active.is_some());
        live.host.reconcile().unwrap();
        let record = match live.host.step(&id).unwrap() {
            Step::Committed(record) => record,
            other => panic!("{id}: {other:?}"),
        };
        let log = live.host.side(&id, record.plan.time, false).unwrap().log;
        assert_eq!((log.len(), log.last().unwrap().message.as_str()), (lines, last), "{log:?}");
    }
}
