//! What systems send that nobody asked for: dead letters with a reason, counted, nothing lost, and the batch goes on.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;

use serde_json::Value;
use weir_model::service::Service;

use crate::support::example::{Example, Live};

const STREAM: &str = "s1_router_syslog_events";

/// The example with its syslog read from a folder of the tenant's.
fn reading(format: &str) -> Example {
    let example = Example::new();
    let stream = format!(
        "event_time = \"collected_at\"\nwatermark = \"2m\"\nretention = \"15m\"\n[schema]\nrouter_host = \"text\"\n\
         router_ip = \"text\"\ncollected_at = {{ type = \"timestamp\", required = true }}\nsyslog_message = \"text\"\n\
         [source]\ntype = \"files\"\npath = \"syslog\"\nsettle = \"2s\"\nformat = \"{format}\"\n"
    );
    example.write(&format!("netops/streams/{STREAM}.toml"), stream.as_bytes());
    std::fs::create_dir_all(folder(&example)).unwrap();
    example
}

fn folder(example: &Example) -> PathBuf {
    example.store().join("netops/syslog")
}

/// A finished file.
fn put(example: &Example, name: &str, bytes: &[u8]) {
    std::fs::write(folder(example).join(name), bytes).unwrap();
    std::fs::write(folder(example).join(format!("{name}.done")), b"").unwrap();
}

fn line(at: &str, router: u32, message: &str) -> String {
    format!(
        "{{\"router_host\":\"Edge-RouterA-0{router}\",\"router_ip\":\"203.0.113.{router}\",\"collected_at\":\"{at}\",\
         \"syslog_message\":\"{message}\"}}\n"
    )
}

/// `count` lease errors of a router in a minute.
fn errors(minute: &str, router: u32, count: u32) -> String {
    (0..count)
        .map(|i| line(&format!("2026-01-31T{minute}:{:02}Z", i % 60), router, "x sapDHCPLseStatePopulateErr y"))
        .collect()
}

/// Rows of a question about a table; none when nothing has made the table yet.
fn rows_of(example: &Example, live: &Live, table: &str, sql: &str) -> Vec<Value> {
    if example.data().join("lake/netops").join(table).is_dir() { example.rows(live, sql) } else { Vec::new() }
}

/// Dead letters of the stream: reasons with how often, as the lake has them.
fn reasons(example: &Example, live: &Live) -> BTreeMap<String, u64> {
    let mut out = BTreeMap::new();
    for row in rows_of(example, live, "dead_letters", "select reason from dead_letters") {
        let reason = row["reason"].as_str().unwrap();
        // Three words say which of them it is.
        let short: Vec<&str> = reason.split(' ').take(3).collect();
        *out.entry(short.join(" ")).or_default() += 1;
    }
    out
}

/// Results: router and minute, how many messages, in which batch.
fn counts(example: &Example, live: &Live) -> Vec<(String, i64, i64)> {
    let sql = "select router_ip, cast(processing_time as varchar) as minute, error_count, _batch_id from s1_results \
        order by processing_time, router_ip, _batch_id";
    let cell = |r: &Value, name: &str| r[name].as_i64().unwrap();
    rows_of(example, live, "s1_results", sql)
        .iter()
        .map(|r| {
            (
                r["router_ip"].as_str().unwrap()[10..].to_owned() + " " + &r["minute"].as_str().unwrap()[11..16],
                cell(r, "error_count"),
                cell(r, "_batch_id"),
            )
        })
        .collect()
}

/// Rows of bronze and dead letters are what was sent: `lines` of them.
fn nothing_is_lost(example: &Example, live: &Live, lines: usize) {
    let number = |table: &str| {
        let rows = rows_of(example, live, table, &format!("select count(*) as n from {table}"));
        rows.first().map_or(0, |row| usize::try_from(row["n"].as_u64().unwrap()).unwrap())
    };
    assert_eq!(number(STREAM) + number("dead_letters"), lines, "{:?}", reasons(example, live));
    let status = live.host.status().unwrap().streams.into_iter().find(|s| s.stream.as_str() == STREAM).unwrap();
    assert_eq!(usize::try_from(status.dead_letters + status.late_rows).unwrap(), number("dead_letters"));
    assert_eq!(status.fault, None);
}

#[test]
fn rows_that_cannot_be_used_are_dead_letters_and_the_alarms_are_right() {
    let example = reading("json_lines");
    let long = line("2026-01-31T11:59:10Z", 34, &"m".repeat(10 << 20));
    let mut text = errors("11:59", 34, 50).into_bytes();
    text.extend_from_slice(long.as_bytes());
    // A null, a wrong type, no event time, a text that is no time, a row of an array, a cut object, bytes that are no text.
    text.extend_from_slice(
        b"{\"router_host\":null,\"collected_at\":\"2026-01-31T11:59:30Z\",\"syslog_message\":null}\n",
    );
    text.extend_from_slice(b"{\"router_ip\":7,\"collected_at\":\"2026-01-31T11:59:30Z\"}\n");
    text.extend_from_slice(b"{\"router_ip\":\"203.0.113.34\",\"collected_at\":null}\n");
    text.extend_from_slice(b"{\"router_ip\":\"203.0.113.34\",\"collected_at\":\"yesterday\"}\n");
    text.extend_from_slice(b"[1]\n{\"router_ip\":\n\xff\xfe\n");
    // A device whose clock is a year ahead, and one a minute and a half; the rows after them are on time.
    text.extend_from_slice(line("2027-01-31T12:00:00Z", 36, "x sapDHCPLseStatePopulateErr y").as_bytes());
    text.extend_from_slice(line("2026-01-31T12:02:01Z", 36, "x sapDHCPLseStatePopulateErr y").as_bytes());
    // Years before all others, and just within what may be late.
    text.extend_from_slice(line("1999-12-31T23:59:59Z", 36, "x sapDHCPLseStatePopulateErr y").as_bytes());
    text.extend_from_slice(errors("11:58", 33, 10).as_bytes());
    put(&example, "a.jsonl", &text);
    put(&example, "empty.jsonl", b"");
    let live = example.open();
    assert_eq!(example.batches(&live), 1);
    let expected: BTreeMap<String, u64> = [
        ("the record is", 1),
        ("column router_ip: expected", 1),
        ("column collected_at: a", 1),
        ("column collected_at: expected", 1),
        ("invalid type: sequence,", 1),
        ("EOF while parsing", 1),
        ("not UTF-8 after", 1),
        ("ahead: collected_at 2027-01-31T12:00:00Z", 1),
        ("ahead: collected_at 2026-01-31T12:02:01Z", 1),
        ("late: collected_at 1999-12-31T23:59:59Z", 1),
    ]
    .into_iter()
    .map(|(reason, n)| (reason.to_owned(), n))
    .collect();
    assert_eq!(reasons(&example, &live), expected);
    let kept = example.rows(&live, "select raw from dead_letters where reason like 'the record is longer%'");
    assert_eq!(kept[0]["raw"].as_str().unwrap(), &long[..65_536], "the beginning of a line that is too long is kept");
    let alarms = [("33 11:58".to_owned(), 10, 1), ("34 11:59".to_owned(), 50, 1)];
    assert_eq!(counts(&example, &live), alarms);
    nothing_is_lost(&example, &live, 50 + 1 + 7 + 3 + 10);

    // The same file again under another name, and touched under its own.
    put(&example, "again.jsonl", &text);
    put(&example, "a.jsonl", &text);
    assert_eq!(example.minute(&live), 1);
    assert_eq!(counts(&example, &live), alarms, "a file that is sent twice counts once");
    let duplicate = example.rows(&live, "select reason, raw from dead_letters where reason like 'duplicate%'");
    assert_eq!(duplicate.len(), 1);
    assert!(duplicate[0]["raw"].as_str().unwrap().contains("again.jsonl"), "{duplicate:?}");
    nothing_is_lost(&example, &live, 71 + 1);
}

/// Whoever asks before there is anything gets the answer "none", with the columns that the table will have.
#[test]
fn the_hosts_own_tables_are_empty_before_their_first_row() {
    let example = reading("json_lines");
    let live = example.open();
    live.host.reconcile().unwrap();
    let tenant = "netops".parse().unwrap();
    let ask = |table: &str| {
        let rows = live.host.query(&tenant, &format!("SELECT * FROM {table}")).unwrap();
        (rows.rows.len(), rows.columns, rows.types)
    };
    let tables = ["dead_letters", "alarm_events", "alarms"];
    let before = tables.map(ask);
    assert!(before.iter().all(|(rows, ..)| *rows == 0), "{before:?}");
    assert_eq!(before[0].1, ["origin", "source", "partition", "offset", "batch_time", "reason", "raw"]);
    assert!(!example.data().join("lake/netops/dead_letters").exists(), "asking makes nothing");
    put(&example, "a.jsonl", (errors("11:59", 34, 50) + "no object\n").as_bytes());
    example.batches(&live);
    for (table, (_, columns, types)) in tables.iter().zip(before) {
        assert_eq!(ask(table), (1, columns, types), "{table}");
    }
}

#[test]
fn a_row_that_is_ahead_is_so_whenever_it_is_read_again() {
    let example = reading("json_lines");
    // A minute and five seconds ahead of 12:00:30 and a bit; a minute later it would not be any more.
    let text = [errors("11:59", 34, 50), line("2026-01-31T12:02:00Z", 36, "x"), errors("12:00", 33, 10)].concat();
    put(&example, "a.jsonl", text.as_bytes());
    let live = example.open();
    let id = example.scenario();
    live.host.reconcile().unwrap();
    assert!(matches!(live.host.step(&id).unwrap(), weir_pipeline::scenario::Step::Committed(_)));
    // The host ends before bronze has anything of it, and comes back when the row's time has come.
    drop(live);
    example.clock.advance(std::time::Duration::from_secs(300));
    let live = example.open();
    example.batches(&live);
    assert_eq!(reasons(&example, &live), [("ahead: collected_at 2026-01-31T12:02:00Z".to_owned(), 1)].into());
    nothing_is_lost(&example, &live, 61);
}

#[test]
fn a_file_that_grows_while_it_is_read_gives_every_line_once() {
    let example = reading("json_lines");
    let path = folder(&example).join("grows.jsonl");
    let mut file = std::fs::File::create(&path).unwrap();
    let whole = errors("11:59", 34, 50);
    // Half of a line is there; nothing is taken while it changes.
    file.write_all(&whole.as_bytes()[..whole.len() / 3 + 7]).unwrap();
    let live = example.open();
    example.batches(&live);
    file.write_all(&whole.as_bytes()[whole.len() / 3 + 7..]).unwrap();
    file.sync_all().unwrap();
    example.clock.advance(std::time::Duration::from_millis(1_500));
    example.batches(&live);
    assert_eq!(counts(&example, &live), []);
    assert_eq!(example.minute(&live), 1);
    assert_eq!(example.minute(&live), 1);
    // It goes on growing after it was read.
    file.write_all(errors("12:03", 33, 10).as_bytes()).unwrap();
    file.sync_all().unwrap();
    example.minute(&live);
    example.minute(&live);
    let seen: Vec<(String, i64)> = counts(&example, &live).into_iter().map(|(what, n, _)| (what, n)).collect();
    assert!(seen.contains(&("33 12:03".to_owned(), 10)), "{seen:?}");
    assert_eq!(reasons(&example, &live), BTreeMap::new());
    nothing_is_lost(&example, &live, 60);
}

#[test]
fn csv_and_parquet_files_raise_the_same_alarms() {
    let example = reading("csv");
    let mut text = "collected_at,router_ip,router_host,syslog_message\n".to_owned();
    for i in 0..50 {
        let message = "\"x, \"\"sapDHCPLseStatePopulateErr\"\"\ny\"";
        writeln!(text, "2026-01-31T11:59:{i:02}Z,203.0.113.34,Edge-RouterA-034,{message}").unwrap();
    }
    text.push_str("2026-01-31T11:59:59Z,203.0.113.34\nyesterday,203.0.113.34,x,y\n");
    put(&example, "a.csv", text.as_bytes());
    let live = example.open();
    assert_eq!(example.batches(&live), 1);
    let alarms = [("34 11:59".to_owned(), 50, 1)];
    assert_eq!(counts(&example, &live), alarms);
    assert_eq!(reasons(&example, &live).values().sum::<u64>(), 2);
    nothing_is_lost(&example, &live, 52);

    // What bronze wrote is a parquet file that another host can read.
    let bronze = std::fs::read_dir(example.data().join("lake/netops").join(STREAM)).unwrap();
    let files: Vec<PathBuf> =
        bronze.map(|e| e.unwrap().path()).filter(|p| p.extension().is_some_and(|e| e == "parquet")).collect();
    let other = reading("parquet");
    for (i, file) in files.iter().enumerate() {
        put(&other, &format!("{i}.parquet"), &std::fs::read(file).unwrap());
    }
    put(&other, "broken.parquet", b"PAR1 and not much more PAR1");
    let live = other.open();
    assert_eq!(other.batches(&live), 1);
    assert_eq!(counts(&other, &live), alarms);
    assert_eq!(reasons(&other, &live), [("the file cannot".to_owned(), 1)].into());
    nothing_is_lost(&other, &live, 51);
}
