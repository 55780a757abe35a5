//! Reference tables: what a query reads of them, and what is said of files that cannot be read.

use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray};
use datafusion::parquet::arrow::ArrowWriter;
use weir_model::{CallError, Digest, FaultKind, Ruleset};

use crate::support::{House, SYSLOG, at, chunk, inputs, lines, name, pinned, ruleset, syslog};

const JOIN: &str = "SELECT t.site, t.level, count(*) AS n FROM syslog s JOIN topology t ON s.router_ip = t.ip \
    GROUP BY t.site, t.level ORDER BY t.site";

/// A ruleset with one query over one table.
fn with_table(table: &str, sql: &str, path: &str, file: &[u8]) -> Ruleset {
    let manifest = format!(
        "[inputs.syslog]\n[queries.q]\nfile = \"queries/q.sql\"\n[tables.topology]\nfile = \"{path}\"\n{table}"
    );
    let mut ruleset = ruleset(&manifest, &[("syslog", SYSLOG)], &[("queries/q.sql", sql)]);
    ruleset.content.insert(path.to_owned(), Arc::from(file));
    ruleset
}

const SCHEMA: &str = "schema = { ip = { type = \"text\", required = true }, site = \"text\", level = \"int64\" }";

fn answer(ruleset: &Ruleset) -> Vec<String> {
    let house = House::new();
    let queries = house.plan(ruleset);
    let rows = syslog(0, &[(at(1), "34", "x"), (at(2), "34", "y"), (at(3), "33", "z"), (at(4), "36", "z")]);
    let mut inputs = inputs(at(5), vec![pinned("syslog", SYSLOG, at(0), vec![chunk(rows, "collected_at")])]);
    inputs.tables = queries.tables().unwrap();
    let once = queries.run("q", &inputs, &[], &[]).unwrap();
    assert_eq!(once, queries.run("q", &inputs, &[], &[]).unwrap());
    lines(&once)
}

fn problems(table: &str, path: &str, file: &[u8]) -> Vec<String> {
    let ruleset = with_table(table, "SELECT * FROM topology", path, file);
    House::new().problems(&ruleset).iter().map(ToString::to_string).collect()
}

/// .33 is in Seoul, .34 in Busan at level 2, .36 is not there.
const EXPECTED: [&str; 2] = ["Busan, \"south\"|2|2", "Seoul||1"];

#[test]
fn a_query_joins_a_stream_with_a_csv_file() {
    let file = "level,ip,note,site\r\n2,203.0.113.34,x,\"Busan, \"\"south\"\"\"\r\n,203.0.113.33,,Seoul\r\n\r\n";
    assert_eq!(answer(&with_table(SCHEMA, JOIN, "tables/t.csv", file.as_bytes())), EXPECTED);
    // As a spreadsheet writes it.
    let marked = [b"\xef\xbb\xbf".as_slice(), file.as_bytes()].concat();
    assert_eq!(answer(&with_table(SCHEMA, JOIN, "tables/t.csv", &marked)), EXPECTED);
}

#[test]
fn json_may_be_an_array_or_lines() {
    let array = br#" [ {"ip":"203.0.113.34","site":"Busan, \"south\"","level":2.0},
        {"site":"Seoul", "more": [1,{}], "ip":"203.0.113.33"} ] "#;
    assert_eq!(answer(&with_table(SCHEMA, JOIN, "tables/t.json", array)), EXPECTED);
    let lines = br#"{"ip":"203.0.113.34","site":"Busan, \"south\"","level":2}

{"site":"Seoul","ip":"203.0.113.33","level":null}"#;
    assert_eq!(answer(&with_table(SCHEMA, JOIN, "tables/t.json", lines)), EXPECTED);
}

fn parquet(columns: Vec<(&str, ArrayRef)>) -> Vec<u8> {
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let mut out = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut out, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    out
}

fn sites(levels: ArrayRef) -> Vec<u8> {
    let ips: ArrayRef = Arc::new(StringArray::from(vec!["203.0.113.34", "203.0.113.33"]));
    let sites: ArrayRef = Arc::new(StringArray::from(vec!["Busan, \"south\"", "Seoul"]));
    parquet(vec![("site", sites), ("level", levels), ("ip", ips)])
}

#[test]
fn parquet_has_its_own_types_or_those_of_a_schema() {
    let file = sites(Arc::new(Int32Array::from(vec![Some(2), None])));
    assert_eq!(answer(&with_table("", JOIN, "tables/t.parquet", &file)), EXPECTED);
    assert_eq!(answer(&with_table(SCHEMA, JOIN, "tables/t.parquet", &file)), EXPECTED);
    let whole = sites(Arc::new(Float64Array::from(vec![Some(2.0), None])));
    assert_eq!(answer(&with_table(SCHEMA, JOIN, "tables/t.parquet", &whole)), EXPECTED);
    let half = sites(Arc::new(Float64Array::from(vec![Some(1.0), Some(2.5)])));
    assert_eq!(
        problems(SCHEMA, "tables/t.parquet", &half),
        ["tables/t.parquet: level: row 2: expected int64, got 2.5; correct the value, or the type in the schema"]
    );
    let text = sites(Arc::new(StringArray::from(vec!["1", "2"])));
    assert_eq!(
        problems(SCHEMA, "tables/t.parquet", &text),
        ["tables/t.parquet: level: expected int64, got a column of type Utf8; correct the type in the schema"]
    );
}

#[test]
fn what_is_no_parquet_is_said_to_be_none() {
    let good = sites(Arc::new(Int64Array::from(vec![1, 2])));
    let mut broken = vec![(good[..good.len() - 9].to_vec(), "cut"), (b"PAR1".to_vec(), "short"), (Vec::new(), "empty")];
    // Damage at every place: an answer or a problem, and never a panic that gets out.
    for at in 4..good.len() {
        let mut bytes = good.clone();
        bytes[at] ^= 0xff;
        let ruleset = with_table(SCHEMA, "SELECT * FROM topology", "tables/t.parquet", &bytes);
        if weir_model::port::QueryEngine::plan(&*House::new().lake, &ruleset).is_err() && at % 50 == 0 {
            broken.push((bytes, "damaged"));
        }
    }
    for (bytes, what) in broken {
        let found = problems(SCHEMA, "tables/t.parquet", &bytes);
        assert!(found[0].starts_with("tables/t.parquet: "), "{what}: {found:?}");
    }
}

#[test]
fn every_bad_cell_of_a_csv_is_named_with_line_and_column() {
    let file = b"ip,site,level\n203.0.113.1,\"two\nlines\",1\n,Seoul,1.5\n203.0.113.2,Busan\n203.0.113.3,\xff,7\n\
        203.0.113.4,x,many\n\"203.0.113.5,x,1\n";
    assert_eq!(
        problems(SCHEMA, "tables/t.csv", file),
        [
            "tables/t.csv: level: line 4: expected int64, got the text \"1.5\"; correct the value, or the type in the schema",
            "tables/t.csv: line 5: it has 2 cells, and the header has 3; put cells that hold a comma or a line end into quotes",
            "tables/t.csv: line 6: not UTF-8 after byte 12 of the line; save the file as UTF-8; correct the line",
            "tables/t.csv: level: line 7: expected int64, got the text \"many\"; correct the value, or the type in the schema",
            "tables/t.csv: line 8: cell 1: a quote is opened and not closed; double a quote inside of a cell; correct the line",
        ]
    );
    let missing = b"ip,site,level\n,Seoul,1\n";
    assert_eq!(
        problems(SCHEMA, "tables/t.csv", missing),
        [
            "tables/t.csv: ip: line 2: a value is required, and it is null or missing; correct the value, or the type in the schema"
        ]
    );
}

#[test]
fn a_header_that_does_not_match_is_said() {
    assert_eq!(
        problems(SCHEMA, "tables/t.csv", b"IP,site,site\n1,2,3\n"),
        [
            "tables/t.csv: ip: line 1: the header has no such column; it has IP, site, site; write it as IP in the schema, as in the file",
            "tables/t.csv: site: line 1: the header has it more than once; rename one of them",
            "tables/t.csv: level: line 1: the header has no such column; it has IP, site, site; add it to the file, or take it out of the schema",
        ]
    );
    assert_eq!(
        problems(SCHEMA, "tables/t.csv", b"\n\n"),
        ["tables/t.csv: it is empty; write a header row with the names of the columns"]
    );
}

#[test]
fn what_is_wrong_in_json_is_named_with_its_line() {
    let array = b"[\n{\"ip\":\"a\",\"level\":\"1\"},\n{\"ip\":null},\n{\"ip\":\"b\"}\n{\"ip\":\"c\"}]";
    assert_eq!(
        problems(SCHEMA, "tables/t.json", array),
        [
            "tables/t.json: level: line 2: expected int64, got the text \"1\"; correct the value, or the type in the schema",
            "tables/t.json: ip: line 3: a value is required, and it is null or missing; correct the value, or the type in the schema",
            "tables/t.json: line 5: a comma or the end of the array is missing; correct the JSON",
        ]
    );
    let cut = b"[{\"ip\":\"a\"},\n {\"ip\":\n \"b";
    assert_eq!(
        problems(SCHEMA, "tables/t.json", cut),
        ["tables/t.json: line 3: EOF while parsing a string; correct the JSON"]
    );
    let lines = b"{\"ip\":\"a\"}\n{\"ip\":7}\nx\n";
    assert_eq!(
        problems(SCHEMA, "tables/t.json", lines),
        [
            "tables/t.json: ip: line 2: expected text, got 7; correct the value, or the type in the schema",
            "tables/t.json: line 3: expected value; correct the line",
        ]
    );
}

#[test]
fn problems_and_memory_are_bounded() {
    let many = format!("ip,site,level\n{}", "a,b,c\n".repeat(1_000));
    let found = problems(SCHEMA, "tables/t.csv", many.as_bytes());
    assert_eq!((found.len(), found[20].as_str()), (21, "tables/t.csv: 980 more values or lines are wrong"));

    let rows = "a,,1\n".repeat(20_000);
    let mut ruleset =
        with_table(SCHEMA, "SELECT * FROM topology", "tables/t.csv", format!("ip,site,level\n{rows}").as_bytes());
    House::new().plan(&ruleset);
    ruleset.limits.table_bytes = 300_000;
    let found = House::new().problems(&ruleset);
    assert!(found.len() == 1 && found[0].message.contains("take more than the 300000 bytes"), "{found:?}");

    // A column of one value packs into nearly nothing, and unpacks into more than is allowed.
    let same: ArrayRef = Arc::new(StringArray::from_iter_values(std::iter::repeat_n("x".repeat(1_000), 20_000)));
    let bomb = parquet(vec![("ip", same)]);
    assert!(bomb.len() < 100_000, "{} bytes", bomb.len());
    let mut ruleset = with_table("", "SELECT * FROM topology", "tables/t.parquet", &bomb);
    ruleset.limits.table_bytes = 10_000_000;
    let found = House::new().problems(&ruleset);
    assert!(found.len() == 1 && found[0].message.contains("take more than"), "{found:?}");
}

#[test]
fn a_plan_pins_the_digest_of_the_file() {
    let file = b"ip,site,level\n203.0.113.1,a,1\n";
    let ruleset = with_table(SCHEMA, "SELECT ip FROM topology", "tables/t.csv", file);
    let house = House::new();
    let queries = house.plan(&ruleset);
    let versions = queries.tables().unwrap();
    assert_eq!(versions[&name("topology")], Digest::of(file).to_string());
    let mut inputs = inputs(at(5), Vec::new());
    let fault = |e: CallError| match e {
        CallError::Fault(fault) => fault.kind,
        CallError::Data(data) => panic!("{data}"),
    };
    assert_eq!(fault(queries.run("q", &inputs, &[], &[]).unwrap_err()), FaultKind::Internal);
    inputs.tables = versions;
    assert_eq!(lines(&queries.run("q", &inputs, &[], &[]).unwrap()), ["203.0.113.1"]);
}

#[test]
fn a_file_without_rows_is_a_table_without_rows() {
    let sql = "SELECT count(*) AS n, max(level) AS most FROM topology";
    for (path, file) in [("tables/t.csv", "ip,site,level\n"), ("tables/t.json", "[]"), ("tables/t.jsonl", "")] {
        assert_eq!(answer(&with_table(SCHEMA, sql, path, file.as_bytes())), ["0|"], "{path}");
    }
}

#[test]
fn names_of_tables_streams_and_row_parameters_are_one_space() {
    let file = b"ip,site,level\n";
    let ruleset = with_table(SCHEMA, "SELECT * FROM topologie", "tables/t.csv", file);
    let found: Vec<String> = House::new().problems(&ruleset).iter().map(ToString::to_string).collect();
    assert_eq!(
        found,
        [
            "queries/q.sql: topologie: there is no table topologie; there are syslog, topology; list the stream under inputs, \
         the reference table under tables, or the table parameter under rows"
        ]
    );
}
