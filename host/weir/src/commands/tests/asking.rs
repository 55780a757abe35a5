use serde_json::{Value, json};
use weir_model::fault::{FaultKind, Problem};

use super::*;
use crate::testing::{Fake, digest, of, record, status};

fn fake() -> Fake {
    Fake::new(status("inc-1", &["acme"], Some(7)))
}

#[test]
fn status_is_one_object_with_the_promised_fields() {
    let (exit, printed) = weir("weir status --json --data {data}", fake());
    assert_eq!(exit, Exit::Done);
    let objects = printed.objects();
    assert_eq!(objects.len(), 1);
    let scenario = &objects[0]["scenarios"][0];
    for field in [
        "tenant",
        "scenario",
        "state",
        "ruleset",
        "plugin",
        "rules",
        "pending",
        "rejected",
        "last_batch",
        "skipped_ticks",
        "sinks",
    ] {
        assert!(scenario.get(field).is_some(), "{field}");
    }
    let (_, printed) = weir("weir status --data {data}", fake());
    assert!(printed.stdout().starts_with("a host is running"), "{}", printed.stdout());
}

#[test]
fn the_zone_of_people_is_that_of_the_settings_or_of_the_command_line_and_json_is_in_utc() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(folder.path().join("ledger")).expect("a folder");
    let config = |zone: &str| {
        let text = format!("display_timezone = \"{zone}\"\n");
        std::fs::write(folder.path().join("weir.toml"), text).expect("written");
    };
    config("Asia/Seoul");
    let asked = |line: &str| {
        let entry = json!({"digest": digest("r"), "event": "active", "time": "2026-11-30T12:00:00Z", "reason": ""});
        let fake = Fake { batches: vec![record(7, json!("judged"))], history: vec![of(entry)], ..fake() };
        on(folder.path(), line, Opened(Some(fake).into(), Vec::new()))
    };
    const CONFIG: &str = "--data {data} --config {data}/weir.toml";
    for (line, time) in [
        (format!("weir status {CONFIG}"), "2026-11-30T21:01:30+09:00"),
        (format!("weir ledger acme/s1 {CONFIG}"), "2026-11-30T21:01:00+09:00"),
        (format!("weir history acme/s1 {CONFIG}"), "2026-11-30T21:00:00+09:00"),
        (format!("weir batch acme/s1 --at 2026-11-30T21:01:00+09:00 {CONFIG}"), "2026-11-30T21:01:00+09:00"),
        (format!("weir status --timezone Europe/Berlin {CONFIG}"), "2026-11-30T13:01:30+01:00"),
        (format!("weir status --json {CONFIG}"), "2026-11-30T12:01:30Z"),
        ("weir status --data {data}".to_owned(), "2026-11-30T12:01:30Z"),
    ] {
        let (exit, printed) = asked(&line);
        assert_eq!(exit, Exit::Done, "{line}: {}", printed.stderr());
        assert!(printed.stdout().contains(time), "{line}: {}", printed.stdout());
    }
    config("Mars/Olympus");
    let (exit, printed) = asked(&format!("weir status {CONFIG}"));
    assert_eq!(exit, Exit::Usage);
    let told = printed.stderr();
    assert!(told.contains("weir.toml:1: display_timezone: 'Mars/Olympus' is no time zone\n"), "{told}");
    assert!(told.contains("fix: write an IANA name, such as \"Asia/Seoul\""), "{told}");
}

#[test]
fn a_folder_that_no_host_has_held_is_left_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    for line in ["weir status --data {data}", "weir status --data {data}/typo", "weir tail --once --data {data}"] {
        let wiring = Opened(Some(fake()).into(), Vec::new());
        let (exit, printed) = on(folder.path(), line, wiring);
        assert_eq!(exit, Exit::Unreachable, "{line}");
        assert!(printed.stderr().contains("none has ever run"), "{}", printed.stderr());
    }
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0);
}

#[test]
fn a_configuration_that_is_wrong_is_exit_code_2() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("weir.toml"), "colour = 1\nthreads.cpu = 0\n").expect("written");
    let line = "weir status --config {data}/weir.toml --data {data}";
    let (exit, printed) = on(folder.path(), line, Opened(None.into(), Vec::new()));
    assert_eq!(exit, Exit::Usage);
    assert_eq!(printed.stderr().matches("error: ").count(), 2, "{}", printed.stderr());
    assert!(printed.stderr().contains("weir.toml:2: threads.cpu: 0 is out of range"), "{}", printed.stderr());
}

#[test]
fn a_batch_that_failed_is_printed_and_is_exit_code_1() {
    let line = "weir batch acme/s1 --at 2026-11-30T12:01:00Z --data {data} --json";
    let (exit, printed) = weir(line, fake());
    assert_eq!(exit, Exit::Done);
    assert_eq!(printed.objects()[0]["plan"]["id"], 7);
    let failed = Fake { outcome: json!({"failed": Fault::tenant(FaultKind::Cpu, "out of fuel")}), ..fake() };
    let (exit, printed) = weir(&line.replace(" --json", ""), failed);
    assert_eq!(exit, Exit::Problems);
    assert!(printed.stdout().contains("\nfailed: out of fuel\n"), "{}", printed.stdout());
}

#[test]
fn a_review_is_of_the_last_batch_or_of_a_time_and_is_one_object() {
    let asked = |line: &str| {
        let cli = Cli::try_parse_from(line.split(' ')).expect("a command line");
        let Command::Review(ask) = &cli.command else { panic!("it is a review") };
        let (fake, mut printed) = (fake(), Printed::default());
        ask::review(&fake, ask, &mut printed.out(cli.common.json)).expect("printed");
        (fake.asked().remove(0), printed)
    };
    let (service, printed) = asked("weir review acme/s1 --json");
    assert_eq!(service, "review acme/s1 None false 20");
    assert_eq!(printed.objects().len(), 1);
    assert_eq!(printed.objects()[0]["calls"][1]["rule"], "1-2");
    assert_eq!(printed.objects()[0]["reasons"], json!([{"why": "open_already", "alarms": 1}]));
    let (service, printed) = asked("weir review acme/s1 --at 2026-11-30T12:01:00Z --latest --rows 3");
    assert_eq!(service, "review acme/s1 Some(\"2026-11-30T12:01:00Z\") true 3");
    assert!(printed.stdout().contains("\nwhy no alarm was opened"), "{}", printed.stdout());

    let failed = Fake { outcome: json!({"failed": Fault::tenant(FaultKind::Cpu, "out of fuel")}), ..fake() };
    let (exit, printed) = weir("weir review acme/s1 --data {data}", failed);
    assert_eq!(exit, Exit::Problems);
    assert!(printed.stdout().contains("\nfailed: out of fuel\n"), "{}", printed.stdout());
}

#[test]
fn a_time_without_a_zone_is_one_of_the_reader() {
    let asked = |line: &str| {
        let cli = Cli::try_parse_from(line.split(' ').map(|word| word.replace('_', " "))).expect("a command line");
        let (fake, mut printed) = (fake(), Printed::default());
        let mut out = printed.out(false);
        out.zone = cli.common.timezone.unwrap_or_default();
        let done = match &cli.command {
            Command::Review(ask) => ask::review(&fake, ask, &mut out),
            Command::Batch(ask) => ask::batch(&fake, ask, &mut out),
            _ => panic!("it has no time"),
        };
        done.map(|()| fake.asked().remove(0)).map_err(|failure| (failure.exit(), failure.to_string()))
    };
    for (line, expected) in [
        ("weir batch acme/s1 --at 2026-11-30_10:17:00", "side acme/s1 2026-11-30T10:17:00Z false"),
        ("weir batch acme/s1 --at 2026-11-30T10:17 --timezone Asia/Seoul", "side acme/s1 2026-11-30T01:17:00Z false"),
        (
            "weir batch acme/s1 --at 2026-11-30T10:17:00Z --timezone Asia/Seoul",
            "side acme/s1 2026-11-30T10:17:00Z false",
        ),
        (
            "weir review acme/s1 --at 2026-11-30_10:17 --timezone Europe/Berlin",
            "review acme/s1 Some(\"2026-11-30T09:17:00Z\") false 20",
        ),
    ] {
        assert_eq!(asked(line).as_deref(), Ok(expected), "{line}");
    }
    let (exit, told) = asked("weir batch acme/s1 --at 2026-10-25T02:30 --timezone Europe/Berlin").unwrap_err();
    assert_eq!(exit, Exit::Usage);
    assert!(told.starts_with("--at: 2026-10-25T02:30:00 is there twice in Europe/Berlin"), "{told}");
    assert!(told.ends_with("write 2026-10-25T02:30:00+02:00 or 2026-10-25T02:30:00+01:00"), "{told}");
}

#[test]
fn a_query_is_rows_and_needs_a_tenant_only_when_there_are_several() {
    let (exit, printed) = weir("weir query select --data {data} --json", fake());
    assert_eq!(exit, Exit::Done);
    assert_eq!(printed.objects()[0], json!({"router": "Edge-034", "n": 60}));
    assert_eq!(printed.objects()[1]["n"], Value::Null);

    let two = || Fake::new(status("inc-1", &["acme", "zeta"], None));
    let (exit, printed) = weir("weir query select --data {data}", two());
    assert_eq!(exit, Exit::Usage);
    assert!(printed.stderr().contains("--tenant: acme, zeta"), "{}", printed.stderr());
    let (exit, _) = weir("weir query select --tenant zeta --data {data}", two());
    assert_eq!(exit, Exit::Done);

    let (exit, printed) = weir("weir query bad --data {data}", fake());
    assert_eq!(exit, Exit::Problems);
    assert_eq!(printed.stderr(), "error: x: no column x\n       fix: name a column of the table\n");
}

#[test]
fn the_ledger_is_paged_and_printed_whole() {
    let batches = || (1..=1_200).map(|n| record(n, json!("judged"))).collect();
    let ask = |options: &str, json: bool| {
        let fake = Fake { batches: batches(), ..fake() };
        let mut printed = Printed::default();
        let line = format!("weir ledger acme/s1{options}");
        let cli = Cli::try_parse_from(line.split(' ')).expect("a command line");
        let Command::Ledger(ledger) = &cli.command else { panic!("it is a ledger") };
        ask::ledger(&fake, ledger, &mut printed.out(json)).expect("printed");
        (fake.asked(), printed)
    };
    let (asked, printed) = ask("", true);
    assert_eq!(
        asked,
        ["None 500", "Some(500) 500", "Some(1000) 500", "Some(1200) 500"].map(|a| format!("ledger acme/s1@live {a}"))
    );
    let ids: Vec<u64> = printed.objects().iter().filter_map(|o| o["batchId"].as_u64()).collect();
    assert_eq!(ids, (1..=1_200).collect::<Vec<_>>());
    let (asked, printed) = ask(" --run side:x --after 10 --limit 3", true);
    assert_eq!(asked, ["ledger acme/s1@side:x Some(10) 3"]);
    assert_eq!(printed.objects()[0]["batchId"], 11);
    // The newest, in order.
    let (asked, printed) = ask(" --limit 3", true);
    assert_eq!(asked, ["newest acme/s1@live 1", "ledger acme/s1@live Some(1197) 3"]);
    let ids: Vec<u64> = printed.objects().iter().filter_map(|o| o["batchId"].as_u64()).collect();
    assert_eq!(ids, [1_198, 1_199, 1_200]);
    let (asked, _) = ask(" --limit 5000", true);
    assert_eq!(asked[..2], ["newest acme/s1@live 1", "ledger acme/s1@live None 500"]);
    let (_, printed) = ask(" --limit 700", false);
    assert!(
        printed.stdout().lines().nth(1).unwrap_or_default().trim_start().starts_with("501 "),
        "{}",
        printed.stdout()
    );
    assert_eq!(printed.stdout().matches("batchId").count(), 1, "one head over all pages");
    assert_eq!(printed.stdout().lines().count(), 701);
}

#[test]
fn a_run_without_batches_is_not_found() {
    let (exit, printed) = weir("weir ledger acme/none --data {data}", fake());
    assert_eq!(exit, Exit::NotFound);
    assert!(printed.stderr().contains("acme/none@live has no batches"), "{}", printed.stderr());
}

#[test]
fn a_ruleset_is_named_by_the_beginning_of_its_digest() {
    let entry = |name: &str| {
        of(json!({"digest": digest(name), "time": "2026-11-30T12:00:00Z", "event": "active", "reason": name}))
    };
    let with = || Fake { history: vec![entry("new"), entry("old"), entry("new")], ..fake() };
    let (exit, printed) = weir("weir history acme/s1 --data {data}", with());
    assert_eq!(exit, Exit::Done);
    assert!(printed.stdout().contains(&digest("old").short()), "{}", printed.stdout());

    let start = digest("new").short();
    let (exit, printed) = weir(&format!("weir rollback acme/s1 {start} --json --data {{data}}"), with());
    assert_eq!(exit, Exit::Done);
    assert_eq!(printed.objects()[0]["pinned"], json!(digest("new")));
    let (exit, printed) = weir("weir rollback acme/s1 --json --data {data}", with());
    assert_eq!(exit, Exit::Done);
    assert_eq!(printed.objects()[0]["pinned"], json!(digest("before")));
    let other = digest("other").short();
    let (exit, _) = weir(&format!("weir rollback acme/s1 {other} --data {{data}}"), with());
    assert_eq!(exit, Exit::NotFound);
}

#[test]
fn actions_say_what_they_did() {
    let held = |state: &str, paused: bool| {
        let mut fake = fake();
        fake.status.scenarios[0].state = serde_json::from_value(json!(state)).unwrap();
        fake.status.scenarios[0].paused = paused.then_some(fake.status.time);
        fake.status.scenarios[0].pinned = paused.then(|| digest("r"));
        fake
    };
    for (ask, before, says) in [
        ("resume", ("paused", true), "acme/s1 is resumed\n"),
        ("resume", ("parked", false), "acme/s1 is resumed\n"),
        ("resume", ("running", false), "acme/s1 runs already\n"),
        ("pause", ("running", false), "acme/s1 is paused\n"),
        ("pause", ("paused", true), "acme/s1 is paused already\n"),
        ("unpin", ("running", true), "acme/s1 is unpinned\n"),
        ("unpin", ("running", false), "acme/s1 was not pinned\n"),
    ] {
        let (exit, printed) = weir(&format!("weir {ask} acme/s1 --data {{data}}"), held(before.0, before.1));
        assert_eq!((exit, printed.stdout().as_str()), (Exit::Done, says), "{ask} {before:?}");
    }
    let mut folder = held("running", false);
    folder.status.live = false;
    let (exit, printed) = weir("weir resume acme/s1 --data {data}", folder);
    let says = "acme/s1 is not paused; it runs as soon as a host does\n";
    assert_eq!((exit, printed.stdout().as_str()), (Exit::Done, says));
    let (_, printed) = weir("weir unpin acme/s1 --json --data {data}", held("running", true));
    assert_eq!(printed.objects()[0], json!({"tenant": "acme", "scenario": "s1", "done": "unpinned"}));
    let (_, printed) = weir("weir unpin acme/s1 --json --data {data}", fake());
    let none = json!({"tenant": "acme", "scenario": "s1", "done": "unpinned", "changed": false});
    assert_eq!(printed.objects()[0], none);
    let (exit, printed) = weir("weir forget acme/s1 --data {data}", fake());
    assert_eq!(exit, Exit::Usage);
    assert!(printed.stderr().contains("still in the rule store"), "{}", printed.stderr());
}

#[test]
fn check_tells_every_problem_and_is_exit_code_1() {
    let checked = |scenario: &str, problems: Vec<Problem>| Checked {
        tenant: Some("acme".parse().expect("a name")),
        scenario: Some(scenario.parse().expect("a name")),
        stream: None,
        problems,
    };
    let bad = vec![
        Problem::new("acme/s2/rules/1-2.json", "no handler").field("nodes[1]").fix("export one"),
        Problem::new("acme/s2/q.sql", "no column x"),
    ];
    let wiring = || Opened(None.into(), vec![checked("s1", Vec::new()), checked("s2", bad.clone())]);
    let folder = tempfile::tempdir().expect("a folder");
    let (exit, printed) = on(folder.path(), "weir check --store {data}", wiring());
    assert_eq!(exit, Exit::Problems);
    assert_eq!(
        printed.stdout(),
        "\
acme/s1: ok
acme/s2: 2 problems
  acme/s2/rules/1-2.json: nodes[1]: no handler
    fix: export one
  acme/s2/q.sql: no column x

1 of 2 checked with problems
"
    );
    let (exit, printed) = on(folder.path(), "weir check --store {data} --json", wiring());
    assert_eq!(exit, Exit::Problems);
    assert_eq!(printed.objects()[0]["ok"], false);
    assert_eq!(printed.objects()[0]["checked"][1]["problems"][0]["field"], "nodes[1]");
    assert_eq!(on(folder.path(), "weir check --store {data} acme/s1", wiring()).0, Exit::Done);
    let (exit, printed) = on(folder.path(), "weir check --store {data} acme/s9", wiring());
    assert_eq!(exit, Exit::NotFound);
    assert!(printed.stderr().starts_with("error: there is no scenario acme/s9\n"), "{}", printed.stderr());
}
